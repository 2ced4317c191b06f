"""Noisy results are measured again while a worker has nothing else to do and its device is quiet.

Real work comes first and cancels it. What is measured, and what comes of it, is in `service.jobs.remeasure`.
"""

import logging
import threading
import time

from sqlalchemy.orm import Session

from db.errors import StoreError
from db.evaluations import results
from db.jobs import jobs, workers
from db.records import EvaluationRecord
from sandbox.base import SandboxUnavailable
from service.cancellation import Cancelled, CancelToken
from service.evaluation_context import EvaluationContext
from service.jobs.remeasure import MOST_TRIES, QUIET_LOAD, SAMPLE_S, can_be_mended, is_quiet, measure_again, rules_of
from service.jobs.spec import settings_of, task_of
from service.weights import has_weights
from service.worker.context import WorkerContext

__all__ = ["MOST_TRIES", "QUIET_LOAD", "Remeasurer"]

IDLE_S = 60.0
"""How long a worker has had nothing to do before it measures again."""

LOOK_S = 60.0
"""Between two looks for a noisy result."""

NEWEST_JOBS = 5000
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
        if found is None or not is_quiet(self._worker.platform, cancel, sample_s=SAMPLE_S):
            return False
        worker = self._worker
        with worker.store.read() as session:
            job = jobs.get_job(session, found.job_id)
        context = EvaluationContext(
            task_of(job),
            worker.platform,
            worker.sandbox,
            settings_of(job, worker.settings),
            rules=rules_of(job),
            cold=bool(job.options.get("cold")),
            weights=worker.weights.of(job),
        )

        def may_store(session: Session) -> bool:
            return workers.lock_if_live(session, worker.worker_id)

        measure_again(worker.store, job, found, context, cancel=cancel, may_store=may_store)
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
                if not can_be_mended(session, job_id, evaluation_id, tags):
                    continue
                if has_weights(session, jobs.get_job(session, job_id)):
                    return results.get_evaluation(session, evaluation_id)
        return None
