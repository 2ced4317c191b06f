"""Jobs that run in this process: started, resumed, or taken from the queue, and exported at the end."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from agents.llm.models import only_builtin
from agents.protocols import Event
from db.jobs import batches, job_queue, jobs
from db.records import RESUMABLE, JobRecord, JobStatus, Owner
from db.store import Store
from sandbox.base import SandboxUnavailable
from service.cancellation import CancelToken
from service.errors import BadRequest, JobLost
from service.evaluation_context import EvaluationContext, check_keys, open_evaluation_context
from service.jobs.batch_budget import allot_budget
from service.jobs.export import Exported, check_target, export_job
from service.jobs.journal import Observer
from service.jobs.limits import check_limits, raisable, raise_limits
from service.jobs.liveness import job_heartbeat, this_process
from service.jobs.persistence import save_task
from service.jobs.query import end_job, get_job, mark_dead_jobs, read_events
from service.jobs.run import JobReport, claim_queued_job, run_claimed_job
from service.jobs.spec import MeasurementTarget, options_of, required_sandbox, settings_of, spec_of, task_of
from service.settings import Settings, read_key
from service.tasks import find_task
from service.translation import translated, translation_option
from tasks.restrict import restrict
from tasks.task import Task

Claim = Callable[[Session, MeasurementTarget, Owner], JobRecord | None]
"""Makes a process the owner of a job that is to be measured on a target; None if there is nothing to run."""

NewClaim = Callable[[Session, MeasurementTarget, Owner], JobRecord]
"""A `Claim` that returns a job or raises."""

ObserverFor = Callable[[JobRecord], Observer]
"""Called when a job starts; returns the observer of its events."""

RunQueued = Callable[[int, Observer], object]
"""Runs a job of the queue, and tells the observer of its events."""


def optimize(
    ref: str,
    *,
    settings: Settings,
    store: Store,
    observe: Observer,
    cancel: CancelToken,
    out: Path | None = None,
    domain: str | None = None,
    origin: str | None = None,
    kernel: str | None = None,
) -> JobReport:
    """Find a faster kernel for the op that `ref` names, and export it to `out` (default: the job's folder).

    `domain` restricts the inputs that it must be right on (`tasks.restrict`). `origin` names the platform whose kernel
    is translated, and `kernel` is that one unless the task brings its own (`service.translation`).

    Raises:
        TaskError, BadRequest: the request is invalid; nothing was started.
        SandboxUnavailable: there is no sandbox to start in.
    """
    task = restrict(find_task(ref, store=store), domain)
    task = translated(task, settings, origin=origin, kernel=kernel)
    if out is not None:
        check_target(out, keep=Path(ref))
    if settings.api_key_file is not None:
        read_key(settings.api_key_file)
    options = options_of(settings) | {"ref": ref, "out": None if out is None else str(out.absolute())}
    options |= translation_option(task)
    add = new_claim(task, settings, options, kind="optimize")
    report = _claim_and_run(task, add, settings=settings, store=store, observe=observe, cancel=cancel)
    assert report is not None, "`add` always returns a job"
    return report


def check_job_keys(job_id: int, *, limits: Mapping[str, Any] | None = None, settings: Settings, store: Store) -> None:
    """Check that the models of a job that is to go on here have keys, before anything is changed.

    Raises:
        NotInStore: there is no such job.
        ModelUnavailable, KeyUnreadable: there is none for a model whose provider needs one.
    """
    job = get_job(store, job_id)
    if job.kind != "evaluate" and (job.status in RESUMABLE or limits):
        check_keys(settings_of(job, settings))


def resume(
    job_id: int,
    *,
    limits: Mapping[str, Any] | None = None,
    settings: Settings,
    store: Store,
    observe: Observer,
    cancel: CancelToken,
) -> JobReport:
    """Continue a job that was interrupted, cancelled or failed, or one that is done and gets larger `limits`.

    Finished and paid work is not repeated. `limits` are by their names in `service.jobs.limits.LIMITS`.

    Raises:
        NotInStore, BadRequest: there is no such job, it is done, another process runs it, or a limit cannot be raised.
        SandboxUnavailable: there is no sandbox to continue in.
    """
    job = get_job(store, job_id)
    if job.kind == "model":
        raise BadRequest(f"job {job_id} is over a whole model; go on with `kernelwright models resume {job_id}`")
    if job.kind != "optimize":
        raise BadRequest(f"job {job_id} evaluated one candidate; there is nothing to resume, evaluate it again")
    if job.status is JobStatus.DONE and not limits and not raisable(job):
        raise BadRequest(f"job {job_id} is done ({job.stop_reason}); `kernelwright jobs show {job_id}` shows it")
    if job.status is JobStatus.QUEUED:
        raise BadRequest(f"job {job_id} waits for a worker; `kernelwright worker --platform {job.platform}` starts one")
    events = read_events(store, job_id)
    if "device" not in job.options or any(event.kind == "llm_call" and "key" not in event.data for event in events):
        raise BadRequest(f"job {job_id} was begun by an earlier version, whose calls cannot be replayed; start it anew")
    busy = BadRequest(f"job {job_id} is being worked on; `kernelwright jobs cancel {job_id}` stops it")
    if limits or job.status is JobStatus.DONE:
        with store.read() as session:
            check_limits(session, job, limits or {})
    settings, claim = resumed_claim(job, settings, name=f"job {job_id}", busy=busy, limits=limits or {})
    report = _claim_and_run(task_of(job), claim, settings=settings, store=store, observe=observe, cancel=cancel)
    assert report is not None, "`claim` returns a job or raises"
    return report


def run_queued(
    job_id: int, *, settings: Settings, store: Store, observe: Observer, cancel: CancelToken
) -> JobReport | None:
    """Run a job of the queue. Finished and paid work of earlier runs is not repeated.

    Returns:
        The report, or None if the job may not run here, another process has taken it, or its batch has no budget left.

    Raises:
        NotInStore: there is no such job.
        BadRequest: the job's settings cannot be used here.
        SandboxUnavailable: there is no sandbox to work with; the job stays in the queue.
    """
    job = get_job(store, job_id)
    settings, claim = queued_claim(job, settings)
    return _claim_and_run(task_of(job), claim, settings=settings, store=store, observe=observe, cancel=cancel)


def new_claim(task: Task, settings: Settings, options: Mapping[str, Any], *, kind: str) -> NewClaim:
    """How a job that does not exist yet is stored, with this process as its owner."""

    def add(session: Session, target: MeasurementTarget, owner: Owner) -> JobRecord:
        spec_of(task, settings, device=target.device)  # refuses what the agents could not run
        job_id = jobs.add_job(
            session,
            task_id=save_task(session, task),
            kind=kind,
            platform=target.platform,
            sandbox=target.sandbox,
            owner=owner,
            model=settings.model,
            strategy=settings.strategy,
            options={**options, "device": target.device, "device_kind": target.device_class},
        )
        return jobs.get_job(session, job_id)

    return add


def resumed_claim(
    job: JobRecord, settings: Settings, *, name: str, busy: BadRequest, limits: Mapping[str, Any] | None = None
) -> tuple[Settings, NewClaim]:
    """The settings of a job that ended early on this machine, and how it is claimed to go on here.

    Args:
        job: the job.
        settings: the settings.
        name: what errors call it.
        busy: the error if another process has it.
        limits: larger limits that it gets, by their names in `service.jobs.limits.LIMITS`.
    """

    def claim(session: Session, target: MeasurementTarget, owner: Owner) -> JobRecord:
        if target.options_for(job, any_sandbox=True) is None:
            first = str(job.options["device"]).partition("\n")[0]
            raise BadRequest(f"{name} began on another kind of device, {first}; resume it on one like that")
        if limits:
            raise_limits(session, job.id, limits)
        if not jobs.restart_job(session, job.id, owner, sandbox=target.sandbox, done=bool(limits)):
            raise busy
        if allot_budget(session, job.id) <= 0:
            more = f"`kernelwright batch resume {job.batch_id} --budget-usd X` allows more"
            raise BadRequest(f"{name}: nothing is left of the total budget of its batch; {more}")
        return jobs.get_job(session, job.id)

    return settings_of(job, settings).model_copy(update={"sandbox": settings.sandbox or job.sandbox or None}), claim


def queued_claim(job: JobRecord, settings: Settings) -> tuple[Settings, Claim]:
    """The settings of a job of the queue on this machine, and how it is claimed here."""

    def claim(session: Session, target: MeasurementTarget, owner: Owner) -> JobRecord | None:
        options = target.options_for(job)
        if options is None:
            return None
        return claim_queued_job(session, job.id, job.attempt, owner, options, sandbox=target.sandbox)

    settings = settings_of(job, settings)
    return settings.model_copy(update={"sandbox": settings.sandbox or required_sandbox(job)}), claim


def run_batch(
    batch_id: int,
    *,
    settings: Settings,
    store: Store,
    observer_for: ObserverFor,
    cancel: CancelToken,
    run_job: RunQueued | None = None,
    before_each: Callable[[], None] = lambda: None,
) -> None:
    """Run the queued jobs of a batch one after the other, until none is left or cancellation is requested.

    Workers may take jobs of the batch meanwhile. A job that fails does not end the batch.

    Args:
        batch_id: the batch.
        settings: the settings.
        store: the store.
        observer_for: called with each job that starts.
        cancel: ends the current job, and the batch.
        run_job: runs a job; None: `run_queued`.
        before_each: called before each job is looked for.

    Raises:
        SandboxUnavailable: there is no sandbox to work with; the jobs stay in the queue.
        JobLost: other processes took this one for dead and have its job.
    """
    tried: list[int] = []
    while not cancel.requested():
        mark_dead_jobs(store)
        before_each()
        with store.read() as session:
            job_id = batches.next_queued(session, batch_id, excluding=tried)
        if job_id is None:
            return
        tried.append(job_id)
        observe = observer_for(get_job(store, job_id))
        try:
            if run_job is not None:
                run_job(job_id, observe)
            else:
                run_queued(job_id, settings=settings, store=store, observe=observe, cancel=cancel)
        except (SandboxUnavailable, JobLost):
            raise
        except Exception as error:
            _fail(store, job_id, error)


@contextlib.contextmanager
def claimed_here(
    task: Task, claim: Claim, owner: Owner, *, settings: Settings, store: Store
) -> Iterator[tuple[EvaluationContext, JobRecord | None]]:
    """Open what a job is evaluated with on this host, and claim the job for its device; None if that fails."""
    own_code_only = only_builtin(settings.model, settings.judge_model)
    with open_evaluation_context(task, settings, own_code_only=own_code_only) as context:
        target = MeasurementTarget(context.platform.name, context.device.describe(), context.sandbox.name)
        with store.write() as session:
            job = claim(session, target, owner)
        yield context, job


def _claim_and_run(
    task: Task, claim: Claim, *, settings: Settings, store: Store, observe: Observer, cancel: CancelToken
) -> JobReport | None:
    """Claim a job for this host's device, run it to its end, and export its best candidate.

    Raises:
        JobLost: other processes took this one for dead and have the job now.
        StoreError: the store is gone; the job can be resumed.
    """
    owner = this_process()
    with claimed_here(task, claim, owner, settings=settings, store=store) as (context, job):
        if job is None:
            return None
        context = replace(context, settings=settings_of(job, settings))
        with job_heartbeat(store, job.id, owner, cancel):
            report = run_claimed_job(store, job.id, owner, context, observe=observe, cancel=cancel)
        return (
            report if report.best is None else replace(report, exported=_export(store, report.job, settings, observe))
        )


def _export(store: Store, job: JobRecord, settings: Settings, observe: Observer) -> Exported:
    try:
        return export_job(store, job, settings)
    except BadRequest as error:  # the target was good when the job began; the result must not be lost for it
        observe(Event("step", 0, {"text": str(error)}))
        return export_job(store, job, settings, out=settings.job_dir(job.id) / "best.py")


def _fail(store: Store, job_id: int, error: Exception) -> None:
    """End a job that could not start, or that broke off. A job that ended by itself keeps its own end."""
    text = str(error) if isinstance(error, BadRequest) else f"{type(error).__name__}: {error}"
    owner = this_process()
    job = get_job(store, job_id)
    with store.write() as session:
        if job.status is JobStatus.QUEUED:
            job_queue.take_job(session, job_id, job.attempt, owner, worker_id=None, sandbox="")
        end_job(session, job_id, owner, status=JobStatus.FAILED, reason="error", detail=text)
