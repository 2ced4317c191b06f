"""How a job of the service has its candidates evaluated: on any device of its kind, through the queue."""

import hashlib
import threading

from db import results
from db.errors import NotInStore
from db.records import EvaluationRecord, JobRecord
from db.store import Store
from evaluator.evaluation import candidate_hash
from sandbox.base import SandboxUnavailable
from service.queue import WorkQueue
from service.stopping import Stop
from service.wiring import Stopped

POLL_S = 0.2
_LOOK_AT_QUEUE = 25  # polls


class MeasureQueued:
    """A `service.run.Measure`: asks for an evaluation and waits until it is in the store."""

    def __init__(self, store: Store, queue: WorkQueue, job: JobRecord, kind: str, stop: Stop) -> None:
        self._store = store
        self._queue = queue
        self._job = job
        self._kind = kind
        self._stop = stop

    def __call__(self, source: str, *, round_number: int, profile: bool) -> EvaluationRecord:
        """As `Measure`. The same candidate asked for again, after a crash for instance, is the same evaluation."""
        digest = candidate_hash(source)
        with self._store.write() as session:
            results.add_candidate(
                session, self._job.id, round_number=round_number, candidate_hash=digest, source=source
            )
            failed = results.count_evaluations(session, self._job.id, digest)
        evaluation_id = evaluation_id_of(self._job.id, digest, failed)
        arguments = {"job_id": self._job.id, "candidate": digest, "round": round_number, "profile": profile}
        self._queue.add_evaluation(evaluation_id, self._job, self._kind, arguments)
        try:
            return self._wait(evaluation_id)
        except Stopped:
            self._queue.withdraw_evaluation(evaluation_id, self._job.attempt)
            raise

    def prepare(self) -> None:
        """Nothing: whoever evaluates has a referee ready."""

    def _wait(self, evaluation_id: str) -> EvaluationRecord:
        polls = 0
        pause = threading.Event()
        while True:
            if self._stop.requested():
                raise Stopped
            polls += 1
            looks = polls % _LOOK_AT_QUEUE == 0
            failure = self._queue.failure_of(evaluation_id, self._job.attempt) if looks else None
            try:
                with self._store.read() as session:
                    return results.get_evaluation(session, evaluation_id)
            except NotInStore:
                if failure is not None:
                    raise SandboxUnavailable(f"evaluation {evaluation_id}: {failure};", "resume the job.") from None
            pause.wait(POLL_S)


def evaluation_id_of(job_id: int, digest: str, failed: int) -> str:
    """An evaluation's id from what it is of; `failed` counts those before it that told nothing of the candidate."""
    return hashlib.sha256(f"{job_id}:{digest}:{failed}".encode()).hexdigest()[:32]
