"""Evaluates the candidates of a queued job on any device of a class, through the queue."""

import hashlib
import time
from typing import Any

from db.changes import Changes
from db.errors import NotInStore
from db.evaluations import results
from db.jobs import jobs
from db.records import EvaluationRecord, JobRecord
from db.store import Store
from service.cancellation import Cancelled, CancelToken
from service.worker.queue import WorkQueue
from service.worker.retry import retry_store
from tasks.outcomes import Verdict, candidate_hash

TICK_S = 0.5
"""How soon a cancellation is noticed. The store is asked only when it has changed."""

_LOOK_AT_QUEUE_S = 5.0


class EvaluationLost(RuntimeError):
    """An evaluation failed for a reason that has nothing to do with the candidate."""


class QueuedEvaluator:
    """A `service.jobs.run.JobEvaluator` that enqueues an evaluation and waits until its result is in the store.

    Args:
        store: the store.
        queue: the queue.
        job: the job.
        kind: the device class to evaluate on.
        cancel: ends waiting.
        changes: those of store and queue.
        sandbox: where to evaluate; None: in the job's.
        name: distinguishes evaluations of one candidate on several classes; empty on the job's own.
        shape_group: the list of the task's `get_input_groups()` that is timed; None: the inputs of `get_inputs()`.
    """

    def __init__(
        self,
        store: Store,
        queue: WorkQueue,
        job: JobRecord,
        kind: str,
        cancel: CancelToken,
        changes: Changes,
        *,
        sandbox: str | None = None,
        name: str = "",
        shape_group: int | None = None,
    ) -> None:
        self._sandbox = sandbox or job.sandbox
        self._name = name
        self._shape_group = shape_group
        self._store = store
        self._queue = queue
        self._job = job
        self._kind = kind
        self._cancel = cancel
        self._changes = changes

    def __call__(
        self, source: str, *, round_number: int, profile: bool, trial: bool, champion: str | None
    ) -> EvaluationRecord:
        """As `JobEvaluator`. The same candidate, asked for again after a crash for example, has the same evaluation."""
        arguments: dict[str, Any] = {
            "job_id": self._job.id,
            "candidate": candidate_hash(source),
            "round": round_number,
            "profile": profile,
            "trial": trial,
            "champion": None if champion is None else candidate_hash(champion),
        }
        if self._shape_group is not None:
            arguments["shape_group"] = self._shape_group
        evaluation_id = retry_store(lambda: self._ask(source, arguments), self._cancel)
        try:
            return self._wait(evaluation_id)
        except Cancelled:
            self._queue.withdraw_evaluation(evaluation_id, self._job.attempt)
            raise

    def _ask(self, source: str, arguments: dict[str, Any]) -> str:
        job_id, digest = self._job.id, arguments["candidate"]
        with self._store.write() as session:
            number = arguments["round"]
            results.add_candidate(session, job_id, round_number=number, candidate_hash=digest, source=source)
            failed = results.count_evaluations(session, job_id, digest, Verdict.SANDBOX_ERROR)
        evaluation_id = evaluation_id_of(job_id, digest, failed, trial=arguments["trial"], name=self._name)
        self._queue.add_evaluation(evaluation_id, self._job, self._kind, arguments, sandbox=self._sandbox)
        return evaluation_id

    def prepare(self) -> None:
        """Do nothing: the evaluating worker prepares its own referee."""

    def _wait(self, evaluation_id: str) -> EvaluationRecord:
        next_look_at_queue = time.monotonic() + _LOOK_AT_QUEUE_S
        with self._changes.subscribe() as changed:
            while not self._cancel.requested():
                failures = time.monotonic() >= next_look_at_queue
                if not changed.wait(TICK_S) and not failures:
                    continue
                changed.clear()
                if failures:
                    next_look_at_queue = time.monotonic() + _LOOK_AT_QUEUE_S
                found = retry_store(lambda: self._look(evaluation_id, failures=failures), self._cancel)  # noqa: B023
                if found is not None:
                    return found
        raise Cancelled

    def _look(self, evaluation_id: str, *, failures: bool) -> EvaluationRecord | None:
        """The evaluation if it is in the store."""
        failure = self._queue.failure_of(evaluation_id, self._job.attempt) if failures else None
        try:
            with self._store.read() as session:
                cancelled = jobs.cancel_requested(session, self._job.id)
                return results.get_evaluation(session, evaluation_id)
        except NotInStore:
            if failure is None:
                return None
            if cancelled:  # the evaluating worker saw the cancellation before this one
                self._cancel.request("cancelled")
                raise Cancelled from None
            # The failure was looked for first: nothing came of it by then.
            raise EvaluationLost(f"evaluation {evaluation_id}: {failure}; resume the job") from None


def evaluation_id_of(job_id: int, digest: str, failed: int, *, trial: bool, name: str = "") -> str:
    """The id of an evaluation.

    Args:
        job_id: the job.
        digest: the candidate's hash.
        failed: how many earlier evaluations said nothing about the candidate.
        trial: whether it is a trial.
        name: see `QueuedEvaluator`.
    """
    kind = ("trial" if trial else "proof") + name
    return hashlib.sha256(f"{job_id}:{digest}:{failed}:{kind}".encode()).hexdigest()[:32]
