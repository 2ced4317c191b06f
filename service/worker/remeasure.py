"""Noisy results are measured again while a worker has nothing else to do and its device is quiet.

A job whose best evaluation is tagged `noisy` has no rank, and that is no fault of its user. Its best candidate is
measured again, at most `MOST_TRIES` times; real work comes first and cancels it. Once a measurement counts, it is the
job's.
"""

import logging
import threading
import time

from db.errors import StoreError
from db.evaluations import results
from db.jobs import jobs, workers
from db.records import EvaluationRecord
from sandbox.base import SandboxUnavailable
from service.cancellation import Cancelled, CancelToken
from service.evaluation_context import EvaluationContext
from service.jobs.persistence import outcome_of, save_evaluation
from service.jobs.query import REMEASURED
from service.jobs.spec import settings_of, task_of
from service.weights import has_weights
from service.worker.context import WorkerContext
from tasks.outcomes import NOISY, is_ranked

MOST_TRIES = 3
IDLE_S = 60.0
"""How long a worker has had nothing to do before it measures again."""

QUIET_LOAD = 0.1
"""The load of others before it begins, at most: less than what makes a result noisy."""

SAMPLE_S = 2.0
"""How long that load is looked at."""

LOOK_S = 60.0
"""Between two looks for a noisy result."""

NEWEST_JOBS = 50
"""The newest jobs of a device, among which noisy ones are looked for."""

log = logging.getLogger(__name__)


class Remeasurer:
    """Every worker has one; it works in a thread of its own, one measurement at a time."""

    def __init__(self, worker: WorkerContext) -> None:
        self._worker = worker
        self._thread: threading.Thread | None = None
        self._cancel: CancelToken | None = None
        self._idle_since = time.monotonic()
        self._next_look = 0.0

    def tick(self) -> None:
        """Begin if the worker has been idle for long; stop if it is idle no more. Called often; takes no time."""
        mine = self._thread is not None and self._thread.is_alive()
        busy = self._worker.running.count() > (1 if mine else 0)
        now = time.monotonic()
        if busy:
            self._idle_since = now
            if mine and self._cancel is not None:
                self._cancel.request("real work came")
        elif not mine and now - self._idle_since > IDLE_S and now >= self._next_look:
            self._next_look = now + LOOK_S
            self._thread = threading.Thread(target=self._step, name="remeasure", daemon=True)
            self._thread.start()

    def _step(self) -> None:
        try:
            with self._worker.running.new_token() as cancel:
                self._cancel = cancel
                if self.measure_one(cancel):
                    self._next_look = 0.0  # there may be another
        except Cancelled:
            log.info("measuring again was cut short")
        except (StoreError, SandboxUnavailable) as error:
            log.warning("measuring again failed: %s", error)
        except Exception:
            log.exception("measuring again failed")

    def measure_one(self, cancel: CancelToken) -> bool:
        """Measure one noisy result again, if there is any and the device is quiet; whether it did.

        Raises:
            Cancelled: real work came, or the worker stops.
            SandboxUnavailable: the sandbox cannot run anything.
            StoreError: the store does not answer.
        """
        found = self._noisy()
        if found is None or not self._is_quiet(cancel):
            return False
        worker = self._worker
        with worker.store.read() as session:
            job = jobs.get_job(session, found.job_id)
        about = {"job": job.id, "candidate": found.candidate_hash[:16]}
        weights = worker.weights.of(job)
        log.info("a noisy result is measured again", extra=about)
        tolerance = job.options.get("tolerance")
        context = EvaluationContext(
            task_of(job),
            worker.platform,
            worker.sandbox,
            settings_of(job, worker.settings),
            rules=() if tolerance is None else (str(tolerance),),
            cold=bool(job.options.get("cold")),
            weights=weights,
        )
        evaluation = context.evaluate(found.source, on_progress=lambda _: None, cancel=cancel)
        with worker.store.write() as session:
            if not workers.lock_if_live(session, worker.worker_id):
                raise Cancelled
            evaluation_id = save_evaluation(
                session, job.id, context, found.source, evaluation, round_number=found.round
            )
            still_best = jobs.get_job(session, job.id).best_evaluation_id == found.id
            counts = evaluation.passed and is_ranked(evaluation.tags) and still_best
            data = {"evaluation": evaluation_id, "verdict": evaluation.verdict.value, "counts": counts}
            results.add_event(session, job.id, REMEASURED, found.round, data)
            if counts:
                jobs.set_best(session, job.id, evaluation_id)
            if counts and job.kind == "optimize":  # what is proved takes the place of the round's earlier figures
                digest = found.candidate_hash
                proof = outcome_of(evaluation, worker.platform, candidate_hash=digest, evaluation_id=evaluation_id)
                results.add_event(session, job.id, "proved", found.round, proof.to_json())
        log.info("measured again: %s", evaluation.message, extra=about)
        return True

    def _noisy(self) -> EvaluationRecord | None:
        """The best evaluation of the newest job of this device for which it is noisy and has tries left.

        Jobs that cannot have their weights any more are left out.
        """
        worker = self._worker
        with worker.store.read() as session:
            newest = results.list_newest_best(
                session,
                platform=worker.platform.name,
                device=worker.device.name,
                sandbox=worker.sandbox.name,
                limit=NEWEST_JOBS,
            )
            for job_id, evaluation_id, tags in newest:
                mends = NOISY in tags and is_ranked(tag for tag in tags if tag != NOISY)
                if not mends or len(results.list_events(session, job_id, kinds=[REMEASURED])) >= MOST_TRIES:
                    continue
                if has_weights(session, jobs.get_job(session, job_id)):
                    return results.get_evaluation(session, evaluation_id)
        return None

    def _is_quiet(self, cancel: CancelToken) -> bool:
        busy = self._worker.platform.load(lambda: cancel.event.wait(SAMPLE_S))
        if cancel.requested():
            raise Cancelled
        return busy is not None and busy <= QUIET_LOAD
