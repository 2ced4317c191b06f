"""Runs one job of the queue: its models are called here, its candidates are evaluated on any device of its class."""

import logging

from agents.protocols import Event
from agents.strategies.registry import SCREEN_THEN_TIME
from db.errors import StoreError
from db.evaluations import results
from db.jobs import job_queue, jobs, workers
from db.records import JobRecord, JobStatus
from evaluator.platforms import screening_platform
from sandbox.base import SandboxUnavailable
from service.cancellation import Cancelled, CancelToken, cancel_when
from service.errors import BadRequest, JobLost, KeyUnreadable, Unavailable
from service.evaluation_context import EvaluationContext
from service.jobs.journal import Observer
from service.jobs.query import cancel_requested, end_job, get_job
from service.jobs.run import INTERRUPTED, SANDBOX_UNAVAILABLE, JobEvaluator, claim_queued_job, run_claimed_job
from service.jobs.spec import for_provider, settings_of, task_of
from service.settings import Settings
from service.worker.context import WorkerContext
from service.worker.model_task import run_model_job
from service.worker.queued_evaluator import QueuedEvaluator
from service.worker.retry import retry_store
from service.worker.screen_then_time import Place, Places, ScreeningEvaluator, places_of
from tasks.outcomes import RIGHT

log = logging.getLogger(__name__)

NO_KEY = "the model's key cannot be read on this worker"
"""The error of the job, for its user. The key's path concerns the operator alone, so it is only in the log."""


def run_job(worker: WorkerContext, job_id: int, attempt: int) -> None:
    """Run a job that waits in this attempt, to its end or until this worker stops; then the job is queued again.

    Raises:
        Cancelled: this worker is stopping and has not claimed the job.
        SandboxUnavailable: this worker's sandbox cannot run anything; the job is queued again.
        StoreError: the store does not answer, and this worker is stopping.
    """
    with worker.running.new_token() as cancel:
        try:
            job = retry_store(lambda: _claim(worker, job_id, attempt), cancel)
        except (Cancelled, StoreError):
            raise
        except Exception as error:  # this program did not write such a row
            text = f"cannot be begun: {error}"
            retry_store(lambda: _refuse(worker, job_id, text), cancel)
            return
        if job is None:
            return
        about = {"job": job_id, "attempt": attempt, "task": job.task.ref, "model": job.model, "user": job.user}
        log.info("job begins", extra=about)
        try:
            _RUNS[job.kind](worker, job, cancel)
        except JobLost as error:
            log.warning("job left alone: %s", error, extra=about)
        except StoreError as error:
            log.warning("job goes back into the queue because the store failed: %s", error, extra=about)
            retry_store(lambda: _requeue(worker, job_id), cancel)
        except SandboxUnavailable:
            retry_store(lambda: _requeue(worker, job_id), cancel)
            raise
        except KeyUnreadable as error:
            log.error("job cannot be run: %s", error, extra=about)
            retry_store(lambda: _fail(worker, job_id, NO_KEY), cancel)
        except (BadRequest, Unavailable) as error:
            text = str(error)
            retry_store(lambda: _fail(worker, job_id, text), cancel)
        except Exception as error:
            log.exception("job failed", extra=about)
            text = f"{type(error).__name__}: {error}"
            retry_store(lambda: _fail(worker, job_id, text), cancel)
        log.info("job ends: %s", retry_store(lambda: get_job(worker.store, job_id), cancel).status.value, extra=about)


def _claim(worker: WorkerContext, job_id: int, attempt: int) -> JobRecord | None:
    with worker.store.write() as session:
        if worker.running.requested() or not workers.lock_if_live(session, worker.worker_id):
            raise Cancelled
        options = worker.target.options_for(jobs.get_job(session, job_id))
        if options is None:  # queued where this worker looks: before it began, or by an earlier version
            job_queue.increment_attempt(session, job_id, attempt)
            return None
        return claim_queued_job(
            session,
            job_id,
            attempt,
            worker.owner,
            options,
            sandbox=worker.sandbox.name,
            worker_id=worker.worker_id,
        )


def _refuse(worker: WorkerContext, job_id: int, error: str) -> None:
    with worker.store.write() as session:
        job_queue.fail_queued(session, job_id, error)


def _optimize(worker: WorkerContext, job: JobRecord, cancel: CancelToken) -> None:
    report = run_claimed_job(
        worker.store,
        job.id,
        worker.owner,
        EvaluationContext(task_of(job), worker.platform, worker.sandbox, _settings_of(worker, job)),
        observe=_observer(job),
        cancel=cancel,
        evaluator=_evaluator(worker, job, cancel),
        prebuild=_evaluates_alone(worker),
        worker_id=worker.worker_id,
        write=lambda action: retry_store(action, cancel),
        changes=worker.changes,
    )
    if report.stop_reason == SANDBOX_UNAVAILABLE:
        raise SandboxUnavailable(report.stop_detail, "")


def _evaluator(worker: WorkerContext, job: JobRecord, cancel: CancelToken) -> JobEvaluator:
    def at(place: Place, name: str) -> QueuedEvaluator:
        return QueuedEvaluator(
            worker.store, worker.queue, job, place.kind, cancel, worker.changes, sandbox=place.sandbox, name=name
        )

    here = Place(worker.device_class, worker.sandbox.name)
    if job.strategy != SCREEN_THEN_TIME:
        return at(here, "")
    screened_device = screening_platform(job.platform).device().name

    def find() -> Places:
        with worker.store.read() as session:
            seen = workers.list_workers(session, live=True)
        return places_of(seen, worker.platform.name, screened_device, begun_on=worker.device_class)

    return ScreeningEvaluator(lambda: retry_store(find, cancel), at, here)


def _evaluates_alone(worker: WorkerContext) -> bool:
    """Whether every worker of the platform is on this host, so that builds made here are used."""
    with worker.store.read() as session:
        seen = workers.list_workers(session, live=True)
    return {each.owner.host for each in seen if each.platform == worker.platform.name} == {worker.owner.host}


def _settings_of(worker: WorkerContext, job: JobRecord) -> Settings:
    """The job's settings; without an own address or key file it gets this worker's, if they are for its provider."""
    settings, own = settings_of(job, worker.settings), for_provider(worker.settings, job.model or "")
    names = ("api_base", "api_key_file")
    return settings.model_copy(update={name: getattr(settings, name) or getattr(own, name) for name in names})


def _evaluate(worker: WorkerContext, job: JobRecord, cancel: CancelToken) -> None:
    """Evaluate the candidate that was stored with the job when a user asked for it."""
    profile = bool(job.options.get("profile", True))
    with worker.store.read() as session:
        sources = results.list_candidate_sources(session, job.id)
    evaluator = QueuedEvaluator(worker.store, worker.queue, job, worker.device_class, cancel, worker.changes)
    reason, best = "evaluated", None
    with cancel_when(lambda: cancel_requested(worker.store, job.id), cancel, "cancelled", changes=worker.changes):
        try:
            for source in sources.values():
                found = evaluator(source, round_number=0, profile=profile, trial=False, champion=None)
                best = found.id if found.verdict in RIGHT else best
        except Cancelled:
            reason = cancel.reason or "cancelled"
    if reason == INTERRUPTED:
        _requeue(worker, job.id)
        return
    status = JobStatus.DONE if reason == "evaluated" else JobStatus.CANCELLED
    with worker.store.write() as session:
        if end_job(session, job.id, worker.owner, status=status, reason=reason) and best is not None:
            jobs.set_best(session, job.id, best)


def _model(worker: WorkerContext, job: JobRecord, cancel: CancelToken) -> None:
    if not run_model_job(worker, job, _settings_of(worker, job), cancel):
        _requeue(worker, job.id)


_RUNS = {"optimize": _optimize, "evaluate": _evaluate, "model": _model}


def _fail(worker: WorkerContext, job_id: int, error: str) -> None:
    with worker.store.write() as session:
        end_job(session, job_id, worker.owner, status=JobStatus.FAILED, reason="error", detail=error)


def _requeue(worker: WorkerContext, job_id: int) -> None:
    """Put a job back into the queue, if it is still this worker's."""
    with worker.store.write() as session:
        job_queue.requeue_job(session, job_id, worker_id=worker.worker_id)


def _observer(job: JobRecord) -> Observer:
    def observe(event: Event) -> None:
        text = str(event.data.get("text", "")) if event.kind == "step" else event.kind
        log.info("%s", text, extra={"job": job.id, "round": event.round})

    return observe
