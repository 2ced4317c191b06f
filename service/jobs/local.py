"""Optimize one op on this machine: a job from its task to its exported best candidate, started or taken up again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agents.llm.models import only_builtin
from agents.protocols import FRESH_START, ResumeState
from db.jobs import batches, job_queue, jobs
from db.records import JobRecord, JobStatus, Owner
from db.store import Store
from sandbox.base import SandboxUnavailable
from service.cancellation import CancelToken
from service.errors import BadRequest, JobLost
from service.evaluation_context import EvaluationContext, open_evaluation_context, open_models
from service.jobs.batch_budget import allot, finish_without_budget
from service.jobs.device_class import MeasurementTarget, required_sandbox
from service.jobs.export import Exported, check_target, export_job
from service.jobs.journal import Journal, Observer
from service.jobs.liveness import job_heartbeat, this_process
from service.jobs.persistence import keep_task
from service.jobs.prebuild import Prebuilder
from service.jobs.query import end_job, get_job, load_resume_state, read_events, settle
from service.jobs.run import JobReport, JobRun, LocalEvaluator
from service.jobs.spec import options_of, settings_of, spec_of, task_of
from service.settings import Settings, read_key
from service.tasks import find_task


def optimize(
    ref: str, *, settings: Settings, store: Store, observe: Observer, cancel: CancelToken, out: Path | None = None
) -> JobReport:
    """Find a faster kernel for the op that `ref` names, and export it to `out` (default: the job's folder).

    Raises:
        TaskError, BadRequest: what was asked for makes no sense; nothing was started.
        SandboxUnavailable: there is no sandbox to start in.
    """
    task = find_task(ref, store=store)
    if out is not None:
        check_target(out, keep=Path(ref))
    if settings.api_key_file is not None:
        read_key(settings.api_key_file)
    options = options_of(settings) | {"ref": ref, "out": None if out is None else str(out.absolute())}
    with open_evaluation_context(
        task, settings, own_code_only=only_builtin(settings.model, settings.judge_model)
    ) as context:
        target = MeasurementTarget(context.platform.name, context.platform.device().describe())
        options |= {"device": target.device, "device_kind": target.kind}
        spec_of(task, settings, device=options["device"])
        owner = this_process()
        with store.write() as session:
            job_id = jobs.add_job(
                session,
                task_id=keep_task(session, task),
                kind="optimize",
                platform=context.platform.name,
                sandbox=context.sandbox.name,
                owner=owner,
                model=settings.model,
                strategy=settings.strategy,
                options=options,
            )
        journal = Journal(store, job_id, observe, owner=owner)
        return run_here(store, job_id, owner, context, options["device"], journal, cancel, FRESH_START)


def resume(job_id: int, *, settings: Settings, store: Store, observe: Observer, cancel: CancelToken) -> JobReport:
    """Go on with a job that was interrupted, cancelled or failed: what it did and paid for stays done.

    Raises:
        NotInStore, BadRequest: there is no such job, it is done, or someone works on it.
        SandboxUnavailable: there is no sandbox to go on in.
    """
    job = get_job(store, job_id)
    if job.kind != "optimize":
        raise BadRequest(f"job {job_id} evaluated one candidate; there is nothing to resume, evaluate it again")
    if job.status is JobStatus.DONE:
        raise BadRequest(f"job {job_id} is done ({job.stop_reason}); `kernelwright jobs show {job_id}` shows it")
    if job.status is JobStatus.QUEUED:
        raise BadRequest(f"job {job_id} waits for a worker; `kernelwright worker --platform {job.platform}` starts one")
    settings = settings_of(job, settings).model_copy(update={"sandbox": settings.sandbox or job.sandbox or None})
    events = read_events(store, job_id)
    if "device" not in job.options or any(event.kind == "llm_call" and "key" not in event.data for event in events):
        raise BadRequest(f"job {job_id} was begun by an earlier version, whose calls cannot be replayed; start it anew")
    with open_evaluation_context(
        task_of(job), settings, own_code_only=only_builtin(settings.model, settings.judge_model)
    ) as context:
        kept = MeasurementTarget(context.platform.name, context.platform.device().describe()).options_for(job)
        if kept is None:
            first = str(job.options["device"]).partition("\n")[0]
            raise BadRequest(f"job {job_id} began on another kind of device, {first}; resume it on one like that")
        owner = this_process()
        with store.write() as session:
            if not jobs.claim_job(session, job_id, owner, sandbox=context.sandbox.name):
                raise BadRequest(f"job {job_id} is being worked on; `kernelwright jobs cancel {job_id}` stops it")
            if allot(session, job_id) <= 0:
                more = f"`kernelwright batch resume {job.batch_id} --budget-usd X` allows more"
                raise BadRequest(f"job {job_id}: nothing is left of the total budget of its batch; {more}")
            context = replace(context, settings=settings_of(jobs.get_job(session, job_id), settings))
        events, resume_state = load_resume_state(
            store, job_id
        )  # whoever ran it before has written the last of them by now
        journal = Journal(store, job_id, observe, events, owner=owner)
        return run_here(store, job_id, owner, context, kept["device"], journal, cancel, resume_state)


def run_here(
    store: Store,
    job_id: int,
    owner: Owner,
    context: EvaluationContext,
    device: str,
    journal: Journal,
    cancel: CancelToken,
    resume_state: ResumeState,
) -> JobReport:
    """Run a job that `owner` has claimed on this host's own device; `device` is what its prompts say of it.

    Raises:
        JobLost: others took this process for dead and have the job now.
        StoreError: the store is gone; the job can be resumed.
    """
    journal.step(f"job {job_id}: {context.task.id} in the {context.sandbox.name} sandbox")
    run = JobRun(
        store,
        job_id,
        owner,
        spec=spec_of(context.task, context.settings, device=device),
        journal=journal,
        evaluator=LocalEvaluator(store, job_id, owner, context, journal.step, cancel),
        platform=context.platform,
        llm=open_models(context.settings, context, step=journal.step, cancel=cancel, resume_state=resume_state),
        cancel=cancel,
        builds=Prebuilder(context, journal.step),
    )
    with job_heartbeat(store, job_id, owner, cancel):
        report = run.run(resume_state)
    if report.best is None:
        return report
    return replace(report, exported=_export(store, report.job, context.settings, journal))


def _export(store: Store, job: JobRecord, settings: Settings, journal: Journal) -> Exported:
    try:
        return export_job(store, job, settings)
    except BadRequest as error:  # the place was good when the job began; a result is not lost for it
        journal.step(str(error))
        return export_job(store, job, settings, out=settings.job_dir(job.id) / "best.py")


Told = Callable[[JobRecord], Observer]
"""Is told of each job that begins, and gives who is told of its events."""


def run_queued(
    job_id: int, *, settings: Settings, store: Store, observe: Observer, cancel: CancelToken
) -> JobReport | None:
    """Run a job that waits; None if it is not ours to run, or nothing is left of its batch's budget.

    What an earlier run of it did and paid for stays done.

    Raises:
        NotInStore: there is no such job.
        BadRequest: what it was asked for cannot be done here.
        SandboxUnavailable: there is no sandbox to work with; the job waits as before.
    """
    job = get_job(store, job_id)
    settings = settings_of(job, settings)
    settings = settings.model_copy(update={"sandbox": settings.sandbox or required_sandbox(job)})
    with open_evaluation_context(
        task_of(job), settings, own_code_only=only_builtin(settings.model, settings.judge_model)
    ) as context:
        owner = this_process()
        kept = MeasurementTarget(
            context.platform.name, context.platform.device().describe(), context.sandbox.name
        ).options_for(job)
        if kept is None:
            return None
        with store.write() as session:
            if not job_queue.take_job(
                session, job_id, job.attempt, owner, worker_id=None, sandbox=context.sandbox.name
            ):
                return None
            if allot(session, job_id) <= 0:
                finish_without_budget(session, job_id, owner)
                return None
            jobs.set_options(session, job_id, **kept)
            taken = jobs.get_job(session, job_id)
        context = replace(context, settings=settings_of(taken, settings))
        events, resume_state = load_resume_state(store, job_id)
        journal = Journal(store, job_id, observe, events, owner=owner)
        return run_here(store, job_id, owner, context, kept["device"], journal, cancel, resume_state)


def run_batch_here(batch_id: int, *, settings: Settings, store: Store, told: Told, cancel: CancelToken) -> None:
    """Run the jobs of a batch that wait, one after the other, until none is left or a stop is requested.

    Workers may take of them meanwhile. A job that fails ends nothing but itself.

    Raises:
        SandboxUnavailable: there is no sandbox to work with; the jobs wait as before.
        JobLost: others took this process for dead and have the job that it ran.
    """
    tried: list[int] = []
    while not cancel.requested():
        settle(store)
        with store.read() as session:
            job_id = batches.next_waiting(session, batch_id, but=tried)
        if job_id is None:
            return
        tried.append(job_id)
        observe = told(get_job(store, job_id))
        try:
            run_queued(job_id, settings=settings, store=store, observe=observe, cancel=cancel)
        except (SandboxUnavailable, JobLost):
            raise
        except Exception as error:
            _fail(store, job_id, error)


def _fail(store: Store, job_id: int, error: Exception) -> None:
    """Have a job end that could not begin, or broke off as it did; one that ran has said so itself."""
    text = str(error) if isinstance(error, BadRequest) else f"{type(error).__name__}: {error}"
    owner = this_process()
    job = get_job(store, job_id)
    with store.write() as session:
        if job.status is JobStatus.QUEUED:
            job_queue.take_job(session, job_id, job.attempt, owner, worker_id=None, sandbox="")
        end_job(session, job_id, owner, status=JobStatus.FAILED, reason="error", detail=text)
