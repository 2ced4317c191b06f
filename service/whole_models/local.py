"""Runs over whole models that run in this process: started, resumed or taken from the queue, and delivered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from db.evaluations import results
from db.jobs import jobs, model_runs
from db.records import WEIGHTS, JobRecord, JobStatus, ModelRunRecord, Owner
from db.store import Store
from db.tables import LOCAL_USER
from sandbox.base import SandboxUnavailable
from service.batches.manage import requeue_regions
from service.cancellation import Cancelled, CancelToken
from service.errors import BadRequest, Conflict, JobLost, Unavailable
from service.jobs.export import is_ours, write_whole
from service.jobs.journal import Observer
from service.jobs.liveness import job_heartbeat, this_process
from service.jobs.local import (
    Claim,
    claimed_here,
    new_claim,
    queued_claim,
    resumed_claim,
    run_batch,
    run_queued,
)
from service.jobs.query import end_job, get_job, mark_dead_jobs
from service.jobs.run import INTERRUPTED, SANDBOX_UNAVAILABLE, LocalEvaluator
from service.jobs.spec import OUT, MeasurementTarget, check_model_platform, options_of, settings_of, task_of
from service.settings import Settings, read_key
from service.tasks import find_task
from service.weights import WeightsReader, check_weights, keep_state, keep_weights, read_state, source_of
from service.whole_models.report import report_text
from service.whole_models.run import ModelReport, ModelRun, is_model_job, options_of_run
from tasks.task import Task
from tasks.weights_file import Weights

REPORT_FILE = "report.md"
"""The delivered file with times, regions and checks. By it a folder is known to be a delivery."""


@dataclass(frozen=True)
class Watching:
    """How a run tells of itself: `begun` gets its number, `step` a few words, `job` the observer of a region's job.

    `job` is called with the job, its place in line and the number of jobs when the job starts.
    """

    begun: Callable[[int], None]
    step: Callable[[str], None]
    job: Callable[[JobRecord, int, int], Observer]


def optimize_model(
    ref: str,
    *,
    settings: Settings,
    store: Store,
    watching: Watching,
    cancel: CancelToken,
    state: Path | None = None,
    out: Path | None = None,
) -> ModelReport:
    """Make the model that `ref` names faster, and deliver it to `out` (default: a folder of the job).

    Raises:
        TaskError, BadRequest: the request is invalid, and nothing was stored; or the model cannot be used.
        SandboxUnavailable: there is no sandbox to work with.
        Unavailable: no job of a region had a model to work with.
        Cancelled: cancellation was requested; the run can be resumed.
    """
    check_model_platform(settings.platform)
    model = find_task(ref, store=store)
    if out is not None:
        check_folder(out)
    if settings.api_key_file is not None:
        read_key(settings.api_key_file)
    weights = None if state is None else keep_state(store, LOCAL_USER, state)
    options = options_of_run(options_of(settings) | {"ref": ref}, weights=weights, out=out)

    add_job = new_claim(model, settings, options, kind="model")

    def add(session: Session, target: MeasurementTarget, owner: Owner) -> JobRecord:
        job = add_job(session, target, owner)
        model_runs.add_run(session, job.id)
        return job

    report = _claim_and_run(model, add, settings=settings, store=store, watching=watching, cancel=cancel)
    assert report is not None, "`add` always returns a job"
    return report


def resume_model(
    run_id: int,
    *,
    settings: Settings,
    store: Store,
    watching: Watching,
    cancel: CancelToken,
    state: Path | None = None,
) -> ModelReport:
    """Continue a run that was interrupted, cancelled or failed. Finished and paid work is not repeated.

    What a run that is done delivers is written if its folder is not there. `state` is the file with the weights that
    it was begun with, for a run whose weights are not kept any more.

    Raises:
        NotInStore: there is no such run.
        Conflict: it is done, waits for a worker, or another process works on it.
        BadRequest: it began on another kind of device or with other weights, its weights are not kept any more, or the
            model cannot be used.
        SandboxUnavailable, Unavailable, Cancelled: as `optimize_model`.
    """
    mark_dead_jobs(store)
    with store.read() as session:
        model_runs.get_run(session, run_id)
    job = get_job(store, run_id)
    if job.status is JobStatus.DONE:
        ended = read_report(run_id, settings=settings, store=store)
        if ended.delivered is None and (again := deliver(ended, settings=settings, store=store)).delivered:
            return again
        raise Conflict(f"model run {run_id} is done; `kernelwright models show {run_id}` shows it")
    if job.status is JobStatus.QUEUED:
        raise Conflict(f"model run {run_id} waits for a worker; `kernelwright worker` starts one")

    if state is not None:
        keep_weights(store, job.user, source_of(check_state(state, run_id, job.options.get(WEIGHTS))))
    with store.read() as session:
        check_weights(session, job)  # before anything is changed
    busy = Conflict(f"model run {run_id} is being worked on by another process")
    settings, restart = resumed_claim(job, settings, name=f"model run {run_id}", busy=busy)

    def claim(session: Session, target: MeasurementTarget, owner: Owner) -> JobRecord:
        restart(session, target, owner)
        jobs.update_options(session, run_id, **(target.options_for(job, any_sandbox=True) or {}))
        requeue_regions(session, run_id)
        return jobs.get_job(session, run_id)

    report = _claim_and_run(task_of(job), claim, settings=settings, store=store, watching=watching, cancel=cancel)
    assert report is not None, "`claim` returns a job or raises"
    return report


def run_queued_model(
    run_id: int, *, settings: Settings, store: Store, watching: Watching, cancel: CancelToken
) -> ModelReport | None:
    """Carry out a run of the queue.

    Returns:
        The report, or None if it may not run here, another process has taken it, or its batch has no budget left.

    Raises:
        NotInStore, BadRequest, SandboxUnavailable, Unavailable, Cancelled: as `resume_model`.
    """
    job = get_job(store, run_id)
    settings, claim = queued_claim(job, settings)
    return _claim_and_run(task_of(job), claim, settings=settings, store=store, watching=watching, cancel=cancel)


def run_queued_job(
    job_id: int, *, settings: Settings, store: Store, observe: Observer, watching: Watching, cancel: CancelToken
) -> None:
    """Run a job of the queue, of whichever kind a batch may hold."""
    if is_model_job(get_job(store, job_id)):
        run_queued_model(job_id, settings=settings, store=store, watching=watching, cancel=cancel)
    else:
        run_queued(job_id, settings=settings, store=store, observe=observe, cancel=cancel)


def _claim_and_run(
    model: Task,
    claim: Claim,
    *,
    settings: Settings,
    store: Store,
    watching: Watching,
    cancel: CancelToken,
) -> ModelReport | None:
    owner = this_process()
    with claimed_here(model, claim, owner, settings=settings, store=store) as (context, job):
        if job is None:
            return None
        watching.begun(job.id)

        def run_jobs(batch_id: int, before_each: Callable[[], None]) -> None:
            with store.read() as session:
                total = sum(region.job_id is not None for region in model_runs.get_run(session, job.id).regions)
            begun = iter(range(1, total + 1))
            run_batch(
                batch_id,
                settings=settings,
                store=store,
                observer_for=lambda each: watching.job(each, next(begun, total), total),
                cancel=cancel,
                before_each=before_each,
            )

        try:
            with job_heartbeat(store, job.id, owner, cancel):
                # With what its batch leaves of the budget.
                context = replace(context, settings=settings_of(job, settings), weights=WeightsReader(store).of(job))

                def evaluator_for(name: str, shape_group: int | None) -> LocalEvaluator:
                    timed = replace(context, shape_group=shape_group)
                    return LocalEvaluator(store, job.id, owner, timed, watching.step, cancel)

                ModelRun(store, job.id, owner, context, evaluator_for, run_jobs, watching.step, cancel).run()
        except JobLost:
            raise
        except BaseException as error:
            with store.write() as session:
                end_job(session, job.id, owner, **how_it_ended(error, cancel))
            raise
    report = read_report(job.id, settings=settings, store=store)
    return deliver(report, settings=settings, store=store)


def check_state(state: Path, run_id: int, digest: object) -> Weights:
    """The weights in a file, if they are those that a run names by their digest; None: it names none.

    Raises:
        BadRequest: they are others, or the file cannot be read.
    """
    weights = read_state(state)
    if weights.digest != digest:
        raise BadRequest(
            f"--state {state}: holds other weights than those that run {run_id} began with; leave it out, or start anew"
        )
    return weights


def how_it_ended(error: BaseException, cancel: CancelToken) -> dict[str, Any]:
    """The status, the reason and one line of detail of a run that an error ended."""
    if isinstance(error, Cancelled | KeyboardInterrupt):
        reason = cancel.reason or INTERRUPTED
        status = JobStatus.INTERRUPTED if reason == INTERRUPTED else JobStatus.CANCELLED
        return {"status": status, "reason": reason, "detail": ""}
    known = isinstance(error, BadRequest | SandboxUnavailable | Unavailable)
    text = " ".join((str(error) if known else f"{type(error).__name__}: {error}").split())[:500]
    reason = SANDBOX_UNAVAILABLE if isinstance(error, SandboxUnavailable) else "error"
    return {"status": JobStatus.FAILED, "reason": reason, "detail": text}


def read_report(run_id: int, *, settings: Settings, store: Store) -> ModelReport:
    """A run as it stands.

    Raises:
        NotInStore: there is no such run.
    """
    mark_dead_jobs(store)
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
        proof = None if run.evaluation_id is None else results.get_evaluation(session, run.evaluation_id)
    folder = folder_of(run, settings)
    return ModelReport(run, proof, folder if (folder / REPORT_FILE).is_file() else None)


def deliver(report: ModelReport, *, settings: Settings, store: Store) -> ModelReport:
    """Write what a run delivers into its folder, if there is anything."""
    files = delivered_files(report, store)
    if not files:
        return report
    folder = folder_of(report.run, settings)
    write_folder(folder, files)
    return ModelReport(report.run, report.proof, folder)


def delivered_files(report: ModelReport, store: Store) -> dict[str, str]:
    """What a run delivers, the text of each file by its name, with the report; empty if nothing is."""
    with store.read() as session:
        files = dict(model_runs.get_files(session, report.run.id))
    return {**files, REPORT_FILE: report_text(report, store)} if files else {}


def folder_of(run: ModelRunRecord, settings: Settings) -> Path:
    """Where a run delivers to on this machine."""
    out = run.options.get(OUT)
    return settings.job_dir(run.id) / "model" if out is None else Path(str(out))


def check_folder(out: Path) -> None:
    """Refuse a place that cannot take the delivered folder.

    Raises:
        BadRequest: something that is not an earlier delivery is there, or its parent is no folder.
    """
    if not out.parent.is_dir():
        raise BadRequest(f"--out {out}: folder {out.parent} is not there; make it first")
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not is_ours(out / REPORT_FILE))):
        raise BadRequest(f"--out {out}: exists and was not written by Kernelwright; choose another name")


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write the delivered files; kernels of an earlier delivery are removed."""
    (folder / "kernels").mkdir(parents=True, exist_ok=True)
    for old in (folder / "kernels").glob("*.py"):
        if f"kernels/{old.name}" not in files:
            old.unlink()
    for name, text in files.items():
        write_whole(folder / name, text)
