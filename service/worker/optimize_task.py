"""One job from the queue: its models are asked here, its candidates are evaluated wherever there is a device."""

import logging

from agents.protocols import Event
from db.errors import StoreError
from db.evaluations import results
from db.jobs import job_queue, jobs, workers
from db.records import JobRecord, JobStatus
from sandbox.base import SandboxUnavailable
from service.cancellation import Cancelled, CancelToken, cancel_when
from service.errors import BadRequest, JobLost, KeyUnreadable
from service.evaluation_context import EvaluationContext, open_models
from service.jobs.batch_budget import allot, finish_without_budget
from service.jobs.journal import Journal, Observer
from service.jobs.prebuild import Prebuilder
from service.jobs.query import cancel_requested, end_job, get_job, load_resume_state
from service.jobs.run import INTERRUPTED, SANDBOX_UNAVAILABLE, JobRun
from service.jobs.spec import for_provider, settings_of, spec_of, task_of
from service.settings import Settings
from service.worker.context import WorkerContext
from service.worker.queued_evaluator import QueuedEvaluator
from service.worker.retry import retry_store
from tasks.outcomes import Verdict

log = logging.getLogger(__name__)
NO_KEY = "the model's key cannot be read on this worker"  # its path, which is the server's, is in the log alone


def run_job(worker: WorkerContext, job_id: int, attempt: int) -> None:
    """Run a job that waits in this attempt to its end, or until this worker is to end: then it waits again.

    Raises:
        Cancelled: this worker is to end, and has not taken the job.
        SandboxUnavailable: this worker's sandbox cannot run anything; the job waits again.
        StoreError: the store does not answer, and this worker is to end.
    """
    with worker.running.new_token() as cancel:
        try:
            if not retry_store(lambda: _take(worker, job_id, attempt), cancel):
                return
        except (Cancelled, StoreError):
            raise
        except Exception as error:  # its row is not as this program writes them
            text = f"cannot be begun: {error}"
            retry_store(lambda: _refuse(worker, job_id, text), cancel)
            return
        job = retry_store(lambda: get_job(worker.store, job_id), cancel)
        about = {"job": job_id, "attempt": attempt, "task": job.task.ref, "model": job.model, "user": job.user}
        log.info("job begins", extra=about)
        try:
            (_evaluate if job.kind == "evaluate" else _optimize)(worker, job, cancel)
        except JobLost as error:
            log.warning("job left alone: %s", error, extra=about)
        except StoreError as error:
            log.warning("job goes back in line, for the store failed it: %s", error, extra=about)
            retry_store(lambda: _give_back(worker, job_id), cancel)
        except SandboxUnavailable:
            retry_store(lambda: _give_back(worker, job_id), cancel)
            raise
        except KeyUnreadable as error:
            log.error("job cannot be run: %s", error, extra=about)
            retry_store(lambda: _fail(worker, job_id, NO_KEY), cancel)
        except BadRequest as error:
            text = str(error)
            retry_store(lambda: _fail(worker, job_id, text), cancel)
        except Exception as error:
            log.exception("job failed", extra=about)
            text = f"{type(error).__name__}: {error}"
            retry_store(lambda: _fail(worker, job_id, text), cancel)
        log.info("job ends: %s", retry_store(lambda: get_job(worker.store, job_id), cancel).status.value, extra=about)


def _take(worker: WorkerContext, job_id: int, attempt: int) -> bool:
    with worker.store.write() as session:
        if worker.running.requested() or not workers.hold(session, worker.worker_id):
            raise Cancelled
        kept = worker.target.options_for(jobs.get_job(session, job_id))
        if kept is None:  # it was in line for others, too: before it began, or by an earlier version
            job_queue.renew_attempt(session, job_id, attempt)
            return False
        if not job_queue.take_job(
            session, job_id, attempt, worker.owner, worker_id=worker.worker_id, sandbox=worker.sandbox.name
        ):
            return False
        jobs.set_options(session, job_id, **kept)
        if allot(session, job_id) <= 0:
            finish_without_budget(session, job_id, worker.owner)
            return False
        return True


def _refuse(worker: WorkerContext, job_id: int, error: str) -> None:
    with worker.store.write() as session:
        job_queue.fail_queued(session, job_id, error)


def _optimize(worker: WorkerContext, job: JobRecord, cancel: CancelToken) -> None:
    settings = _settings_of(worker, job)
    task = task_of(job)
    events, resume_state = load_resume_state(worker.store, job.id)
    journal = Journal(
        worker.store,
        job.id,
        _observe(job),
        events,
        owner=worker.owner,
        keep=lambda action: retry_store(action, cancel),
    )
    context = EvaluationContext(task, worker.platform, worker.sandbox, settings)
    report = JobRun(
        worker.store,
        job.id,
        worker.owner,
        spec=spec_of(task, settings, device=str(job.options["device"])),
        journal=journal,
        evaluator=QueuedEvaluator(worker.store, worker.queue, job, worker.kind, cancel),
        platform=worker.platform,
        llm=open_models(settings, context, step=journal.step, cancel=cancel, resume_state=resume_state),
        cancel=cancel,
        worker_id=worker.worker_id,
        builds=Prebuilder(context, journal.step) if _evaluates_alone(worker) else None,
    ).run(resume_state)
    if report.stop_reason == SANDBOX_UNAVAILABLE:
        raise SandboxUnavailable(report.stop_detail, "")


def _evaluates_alone(worker: WorkerContext) -> bool:
    """Whether no other host would evaluate what is built here."""
    with worker.store.read() as session:
        seen = workers.list_workers(session, seen=True)
    return {each.owner.host for each in seen if each.platform == worker.platform.name} == {worker.owner.host}


def _settings_of(worker: WorkerContext, job: JobRecord) -> Settings:
    """As the job keeps them; where it has no address or key of its own, this worker's, for their provider alone."""
    settings, own = settings_of(job, worker.settings), for_provider(worker.settings, job.model or "")
    names = ("api_base", "api_key_file")
    return settings.model_copy(update={name: getattr(settings, name) or getattr(own, name) for name in names})


def _evaluate(worker: WorkerContext, job: JobRecord, cancel: CancelToken) -> None:
    """A candidate that a user wants evaluated, for the first time or once more: it was stored with the job."""
    profile = bool(job.options.get("profile", True))
    with worker.store.read() as session:
        sources = results.list_candidate_sources(session, job.id)
    evaluator = QueuedEvaluator(worker.store, worker.queue, job, worker.kind, cancel)
    reason, best = "evaluated", None
    with cancel_when(lambda: cancel_requested(worker.store, job.id), cancel, "cancelled"):
        try:
            for source in sources.values():
                kept = evaluator(source, round_number=0, profile=profile)
                best = kept.id if kept.verdict == Verdict.PASSED else best
        except Cancelled:
            reason = cancel.reason or "cancelled"
    if reason == INTERRUPTED:
        _give_back(worker, job.id)
        return
    status = JobStatus.DONE if reason == "evaluated" else JobStatus.CANCELLED
    with worker.store.write() as session:
        if end_job(session, job.id, worker.owner, status=status, reason=reason) and best is not None:
            jobs.set_best(session, job.id, best)


def _fail(worker: WorkerContext, job_id: int, error: str) -> None:
    with worker.store.write() as session:
        end_job(session, job_id, worker.owner, status=JobStatus.FAILED, reason="error", detail=error)


def _give_back(worker: WorkerContext, job_id: int) -> None:
    """Put a job back in line that is still ours to run."""
    with worker.store.write() as session:
        job_queue.requeue_job(session, job_id, worker_id=worker.worker_id)


def _observe(job: JobRecord) -> Observer:
    def observe(event: Event) -> None:
        text = str(event.data.get("text", "")) if event.kind == "step" else event.kind
        log.info("%s", text, extra={"job": job.id, "round": event.round})

    return observe
