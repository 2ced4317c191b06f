"""Runs one evaluation of the queue on this worker's device and stores the result."""

import logging
from collections.abc import Mapping
from typing import Any

from db.errors import StoreError
from db.evaluations import results
from db.jobs import jobs, workers
from db.records import JobRecord, JobStatus
from evaluator.phases import STARTING
from service.cancellation import Cancelled, CancelToken, cancel_when
from service.evaluation_context import EvaluationContext
from service.jobs.persistence import save_evaluation
from service.jobs.phase_notes import PHASE, PhaseNotes, place_of
from service.jobs.spec import settings_of, task_of
from service.worker.context import WorkerContext
from service.worker.retry import retry_store

_OVER = (JobStatus.DONE, JobStatus.CANCELLED, JobStatus.FAILED)

log = logging.getLogger(__name__)


def run_evaluation(worker: WorkerContext, evaluation_id: str, arguments: dict[str, Any]) -> None:
    """Evaluate the candidate that the arguments name, unless that was done or its job has ended.

    Raises:
        Cancelled: this worker is stopping; another one must evaluate.
        SandboxUnavailable: this worker's sandbox cannot run anything.
        StoreError: the store does not answer, and this worker is stopping.
    """
    with worker.running.new_token() as cancel:
        _run(worker, evaluation_id, arguments, cancel)


def _run(worker: WorkerContext, evaluation_id: str, arguments: dict[str, Any], cancel: CancelToken) -> None:
    job_id, digest = int(arguments["job_id"]), str(arguments["candidate"])
    found = retry_store(lambda: _find(worker, evaluation_id, arguments), cancel)
    if found is None:
        return
    job, source, champion = found
    about = {"job": job_id, "evaluation": evaluation_id, "candidate": digest[:16]}
    log.info("evaluation begins", extra=about)
    tolerance = job.options.get("tolerance")
    context = EvaluationContext(
        task_of(job),
        worker.platform,
        worker.sandbox,
        settings_of(job, worker.settings),
        rules=() if tolerance is None else (str(tolerance),),
        cold=bool(job.options.get("cold")),
        weights=retry_store(lambda: worker.weights.of(job), cancel),
        shape_group=arguments.get("shape_group", job.options.get("shape_group")),
        sanitize=bool(job.options.get("sanitize")),
    )

    def note(data: Mapping[str, Any]) -> None:
        with worker.store.write() as session:
            results.add_event(session, job_id, PHASE, int(arguments["round"]), data)

    phases = PhaseNotes(note, place_of(context))
    phases.note(STARTING)

    def progress(text: str) -> None:
        log.info("evaluation: %s", text, extra=about)
        phases.read_line(text)

    with cancel_when(lambda: _ended(worker, job_id), cancel, "cancelled", changes=worker.changes):
        try:
            evaluation = context.evaluate(
                source,
                on_progress=progress,
                cancel=cancel,
                profile=bool(arguments.get("profile")),
                trial=bool(arguments.get("trial")),
                champion=champion,
            )
        except Cancelled:
            if worker.running.requested():
                raise
            log.info("evaluation called off", extra=about)
            return

    def keep() -> None:
        with worker.store.write() as session:
            if not workers.lock_if_live(session, worker.worker_id):
                raise Cancelled  # given up while we worked; the result is another's to find
            save_evaluation(
                session,
                job_id,
                context,
                source,
                evaluation,
                round_number=int(arguments["round"]),
                evaluation_id=evaluation_id,
            )

    retry_store(keep, cancel)
    log.info("evaluation ends: %s", evaluation.verdict.value, extra=about)
    context.prepare()


def _find(
    worker: WorkerContext, evaluation_id: str, arguments: Mapping[str, Any]
) -> tuple[JobRecord, str, str | None] | None:
    """The job, the candidate's source and that of the candidate to compare with; None if there is nothing to do."""
    job_id, champion = int(arguments["job_id"]), arguments.get("champion")
    with worker.store.read() as session:
        if worker.running.requested() or not workers.is_live(session, worker.worker_id):
            raise Cancelled
        job = jobs.get_job(session, job_id)
        if results.has_evaluation(session, evaluation_id) or _is_over(job):
            return None
        source = results.get_candidate_source(session, job_id, str(arguments["candidate"]))
        beside = None if champion is None else results.get_candidate_source(session, job_id, str(champion))
        return job, source, beside


def _ended(worker: WorkerContext, job_id: int) -> bool:
    try:
        with worker.store.read() as session:
            return _is_over(jobs.get_job(session, job_id))
    except StoreError:
        return False  # we shall hear of it when it answers again


def _is_over(job: JobRecord) -> bool:
    """Whether no job wants the result any more. A job that waits for another worker still does."""
    return job.cancel_requested or job.status in _OVER
