"""Runs one job over a whole model: its regions' jobs and all evaluations go through the queue."""

import logging
from collections.abc import Callable

from db.jobs import batches
from db.records import OPEN, JobRecord, JobStatus
from service.cancellation import Cancelled, CancelToken
from service.evaluation_context import EvaluationContext
from service.jobs.query import end_job
from service.jobs.run import INTERRUPTED
from service.jobs.spec import task_of
from service.settings import Settings
from service.whole_models.run import ModelRun
from service.worker.context import WorkerContext
from service.worker.queued_evaluator import QueuedEvaluator
from service.worker.retry import retry_store

TICK_S = 0.5
"""How soon a cancellation is noticed. The store is asked only when it has changed."""

log = logging.getLogger(__name__)


def run_model_job(worker: WorkerContext, job: JobRecord, settings: Settings, cancel: CancelToken) -> bool:
    """Run a claimed job over a whole model from where it stands.

    Returns:
        False if this worker is stopping, so that the job must go back into the queue.

    Raises:
        BadRequest, Unavailable, SandboxUnavailable, JobLost: as `ModelRun.run`.
    """

    def evaluator_for(name: str, shape_group: int | None) -> QueuedEvaluator:
        return QueuedEvaluator(
            worker.store,
            worker.queue,
            job,
            worker.device_class,
            cancel,
            worker.changes,
            name=name,
            shape_group=shape_group,
        )

    run = ModelRun(
        worker.store,
        job.id,
        worker.owner,
        EvaluationContext(task_of(job), worker.platform, worker.sandbox, settings, weights=worker.weights.of(job)),
        evaluator_for,
        lambda batch_id, end_jobs: _wait_for_batch(worker, batch_id, end_jobs, cancel),
        lambda text: log.info("%s", text, extra={"job": job.id}),
        cancel,
        write=lambda action: retry_store(action, cancel),
        changes=worker.changes,
    )
    try:
        run.run()
    except Cancelled:
        reason = cancel.reason or "cancelled"
        if reason == INTERRUPTED:
            return False
        with worker.store.write() as session:
            end_job(session, job.id, worker.owner, status=JobStatus.CANCELLED, reason=reason)
    return True


def _wait_for_batch(worker: WorkerContext, batch_id: int, end_jobs: Callable[[], None], cancel: CancelToken) -> None:
    """Return when no job of a batch waits or runs. Workers take them from the queue.

    `end_jobs` is called whenever the numbers of jobs by status have changed.

    Raises:
        Cancelled: cancellation was requested before.
    """

    def counts() -> dict[JobStatus, int]:
        with worker.store.read() as session:
            return batches.count_jobs(session, [batch_id])[batch_id]

    known: dict[JobStatus, int] = {}
    with worker.changes.subscribe() as changed:
        while not cancel.requested():
            if changed.wait(TICK_S):
                changed.clear()
                found = retry_store(counts, cancel)
                if not any(found.get(status, 0) for status in OPEN):
                    return
                if found != known:
                    known = found
                    retry_store(end_jobs, cancel)
    raise Cancelled
