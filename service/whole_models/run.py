"""One run over a whole model, from its file to the delivered folder. A killed run goes on where it was."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from agents.llm.models import only_builtin
from db.evaluations import results
from db.jobs import batches, job_queue, jobs, model_runs
from db.records import EvaluationRecord, JobRecord, JobStatus, ModelRegionRecord, ModelRunRecord
from db.store import Store
from sandbox.base import SandboxUnavailable
from service.batches.manage import resume_batch
from service.cancellation import Cancelled, CancelToken
from service.errors import BadRequest, Conflict, Unavailable
from service.evaluate import evaluate_source
from service.evaluation_context import open_evaluation_context
from service.jobs.export import write_whole
from service.jobs.journal import Observer
from service.jobs.local import run_batch
from service.jobs.persistence import save_task
from service.jobs.run import NOTHING_TO_WORK_WITH
from service.jobs.spec import options_of, settings_of_options
from service.settings import Settings
from service.submissions.enqueue import kept_options
from service.tasks import find_task
from service.whole_models.assemble import Assembler, Assembly, chosen, kernels_of
from service.whole_models.plan import Plan, check_platform, check_state, make_plan, plan_json
from service.whole_models.report import report_text
from tasks.outcomes import Verdict
from tasks.task import Task
from whole_models.put_back import put_back
from whole_models.regions import counted_ms

CANDIDATE_FILE = "candidate.py"
"""The delivered file that is the whole of it as one candidate, which the proof is of."""

LEFT_TO_GAIN = 0.01
"""Regions that together could not make the model faster by this share get no jobs."""


@dataclass(frozen=True)
class Watching:
    """How a run tells of itself: `step` gets a few words, `job` the observer of the events of each job."""

    step: Callable[[str], None]
    job: Callable[[JobRecord, int, int], Observer]


@dataclass(frozen=True)
class ModelReport:
    """A run as it stands, its proof, and the folder with what is delivered; None: there is none yet."""

    run: ModelRunRecord
    proof: EvaluationRecord | None
    delivered: Path | None


def start_run(ref: str, *, settings: Settings, store: Store, state: Path | None, out: Path | None) -> int:
    """Store a run over the model that `ref` names. `run_model` carries it out.

    Returns:
        The run's id.

    Raises:
        TaskError, BadRequest: the request is invalid; nothing was stored.
    """
    check_platform(settings.platform)
    model = find_task(ref, store=store)
    if out is not None:
        check_folder(out)
    if state is not None:
        check_state(state)
    options = options_of(settings) | {
        "judge_model": settings.judge_model,
        "strategy": settings.strategy,
        "state": None if state is None else str(state.absolute()),
        "out": None if out is None else str(out.absolute()),
    }
    with store.write() as session:
        return model_runs.add_run(
            session,
            task_id=save_task(session, model),
            platform=settings.platform,
            model=settings.model,
            options=options,
        )


def check_folder(out: Path) -> None:
    """Refuse a place that cannot take the delivered folder.

    Raises:
        BadRequest: something that is not an earlier delivery is there, or its parent is no folder.
    """
    if not out.parent.is_dir():
        raise BadRequest(f"--out {out}: folder {out.parent} is not there; make it first")
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / "report.md").is_file())):
        raise BadRequest(f"--out {out}: exists and was not written by Kernelwright; choose another name")


def run_model(run_id: int, *, settings: Settings, store: Store, watching: Watching, cancel: CancelToken) -> ModelReport:
    """Carry out a run from where it stands to its end.

    Raises:
        NotInStore: there is no such run.
        Conflict: another process works on it, or it is done.
        BadRequest: the model cannot be used.
        SandboxUnavailable: there is no sandbox to work with.
        Cancelled: cancellation was requested; the run can be resumed.
    """
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
    if run.status is JobStatus.DONE:
        raise Conflict(f"model run {run_id} is done; `kernelwright models show {run_id}` shows it")
    settings = settings_of_run(run, settings)
    folder = run_folder(settings, run_id)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "lock", run_id):
        with store.read() as session:  # another process may have worked on it until now
            run = model_runs.get_run(session, run_id)
        try:
            return _carry_out(run, folder, settings=settings, store=store, watching=watching, cancel=cancel)
        except BaseException as error:
            status = JobStatus.INTERRUPTED if isinstance(error, Cancelled | KeyboardInterrupt) else JobStatus.FAILED
            with store.write() as session:
                model_runs.finish_run(session, run_id, status=status, error=_line(error))
            raise


def settings_of_run(run: ModelRunRecord, settings: Settings) -> Settings:
    """`settings` with those that are stored with the run."""
    return settings_of_options(run.options, settings).model_copy(
        update={"platform": run.platform, "model": run.model, "strategy": run.options.get("strategy")}
    )


def run_folder(settings: Settings, run_id: int) -> Path:
    """The folder of a run's files."""
    return settings.data_dir / "models" / str(run_id)


def read_report(run_id: int, *, settings: Settings, store: Store) -> ModelReport:
    """A run as it stands.

    Raises:
        NotInStore: there is no such run.
    """
    mark_stopped_runs(settings, store)
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
        proof = None if run.evaluation_id is None else results.get_evaluation(session, run.evaluation_id)
    folder = folder_of(run, settings)
    return ModelReport(run, proof, folder if (folder / "report.md").is_file() else None)


def mark_stopped_runs(settings: Settings, store: Store) -> None:
    """Mark runs of this machine as interrupted whose process has ended without a word: nobody holds their lock."""
    with store.read() as session:
        running = [run.id for run in model_runs.list_runs(session) if run.status is JobStatus.RUNNING]
    for run_id in running:
        lock = run_folder(settings, run_id) / "lock"
        if not lock.is_file():
            continue
        with contextlib.suppress(Conflict), _alone(lock, run_id), store.write() as session:
            if model_runs.get_run(session, run_id).status is JobStatus.RUNNING:
                model_runs.finish_run(
                    session, run_id, status=JobStatus.INTERRUPTED, error="its process ended in the middle of it"
                )


def folder_of(run: ModelRunRecord, settings: Settings) -> Path:
    """Where a run delivers to."""
    out = run.options.get("out")
    return run_folder(settings, run.id) / "delivered" if out is None else Path(str(out))


def _carry_out(
    run: ModelRunRecord, folder: Path, *, settings: Settings, store: Store, watching: Watching, cancel: CancelToken
) -> ModelReport:
    model = run.task.to_task()
    plan = _plan(run, model, folder, settings=settings, store=store, watching=watching, cancel=cancel)
    _optimize(run.id, model, plan, settings=settings, store=store, watching=watching, cancel=cancel)
    assembly = _assemble(run.id, model, plan, settings=settings, store=store, watching=watching, cancel=cancel)
    proof = _prove(run.id, model, assembly, settings=settings, store=store, watching=watching, cancel=cancel)
    return _deliver(run.id, plan, assembly, proof, settings=settings, store=store)


def _plan(
    run: ModelRunRecord,
    model: Task,
    folder: Path,
    *,
    settings: Settings,
    store: Store,
    watching: Watching,
    cancel: CancelToken,
) -> Plan:
    _stage(store, run.id, run.stage)
    state = run.options.get("state")
    plan = make_plan(
        model,
        folder,
        settings=settings,
        state=None if state is None else Path(str(state)),
        on_progress=watching.step,
        cancel=cancel,
    )
    if not run.regions:
        with store.write() as session:
            model_runs.set_plan(session, run.id, plan_json(plan), _region_records(session, plan))
    elif {each.name for each in run.regions} != set(plan.tasks):
        raise BadRequest(f"model run {run.id} was begun by another version, which found other regions; start it anew")
    return plan


def _region_records(session: Session, plan: Plan) -> list[ModelRegionRecord]:
    total_ms = counted_ms(plan.captured)
    return [
        ModelRegionRecord(
            name=region.name,
            position=position,
            kind=region.kind,
            occurrences=len(region.occurrences),
            eager_ms=region.eager_ms,
            share=region.eager_ms / total_ms if total_ms else 0.0,
            task_id=save_task(session, plan.tasks[region.name]),
            job_id=None,
        )
        for position, region in enumerate(plan.chosen)
    ]


def _optimize(
    run_id: int,
    model: Task,
    plan: Plan,
    *,
    settings: Settings,
    store: Store,
    watching: Watching,
    cancel: CancelToken,
) -> None:
    """Run one job for each region that is worth one, the largest share first."""
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
    if run.batch_id is None:
        with store.write() as session:
            model_runs.set_batch(session, run_id, _queue_jobs(session, run, model, plan, settings))
    elif run.stage in ("plan", "optimize"):
        resume_batch(store, run.batch_id)
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
    if run.stage != "optimize" or run.batch_id is None:
        return
    total = sum(each.job_id is not None for each in run.regions)
    begun = iter(range(1, total + 1))
    run_batch(
        run.batch_id,
        settings=settings,
        store=store,
        observer_for=lambda job: watching.job(job, next(begun, total), total),
        cancel=cancel,
    )
    if cancel.requested():
        raise Cancelled
    _require_answers(store, run)
    _stage(store, run_id, "assemble")


def _require_answers(store: Store, run: ModelRunRecord) -> None:
    """Stop a run none of whose jobs had a model or a sandbox to work with: that nothing was found says nothing then.

    Raises:
        Unavailable: all jobs failed for such a reason.
    """
    with store.read() as session:
        found = jobs.list_jobs(session, batch_id=run.batch_id)
    if found and all(job.status is JobStatus.FAILED and job.stop_reason in NOTHING_TO_WORK_WITH for job in found):
        raise Unavailable(f"{found[-1].error or found[-1].stop_reason} (then: kernelwright models resume {run.id})")


def _queue_jobs(session: Session, run: ModelRunRecord, model: Task, plan: Plan, settings: Settings) -> int:
    worth = worth_a_job(run.regions)
    dollars = _budgets(worth, settings)
    spec = {
        "name": f"whole model {model.name}",
        "tasks": [plan.tasks[each.name].id for each in worth],
        "models": [settings.model],
        "platforms": [settings.platform],
        "model_run": run.id,
    }
    batch_id = batches.add_batch(
        session, name=str(spec["name"])[:200], user=run.user, spec=spec, budget_usd=settings.budget_usd
    )
    new = [
        job_queue.NewJob(
            task_id=each.task_id,
            platform=settings.platform,
            model=settings.model,
            strategy=settings.strategy,
            options=kept_options(
                plan.tasks[each.name],
                settings.model_copy(update={"budget_usd": dollars.get(each.name)}),
            ),
            sample=1,
        )
        for each in worth
    ]
    job_queue.add_queued_jobs(session, new, user=run.user, priority=0, batch_id=batch_id)
    return batch_id


def worth_a_job(regions: Sequence[ModelRegionRecord]) -> list[ModelRegionRecord]:
    """The regions that get a job, the largest share first, without the smallest that together could gain too little."""
    parts = sorted(regions, key=lambda each: (-each.share, each.position))
    left = 0.0
    while parts and (left := left + parts[-1].share) < LEFT_TO_GAIN:
        parts.pop()
    return parts


def _budgets(regions: Sequence[ModelRegionRecord], settings: Settings) -> Mapping[str, float]:
    """The dollars of each region's job: its share of the total is its share of the time."""
    if settings.budget_usd is None or only_builtin(settings.model, settings.judge_model):
        return {}
    total = sum(each.share for each in regions) or 1.0
    return {each.name: settings.budget_usd * each.share / total for each in regions}


def _assemble(
    run_id: int,
    model: Task,
    plan: Plan,
    *,
    settings: Settings,
    store: Store,
    watching: Watching,
    cancel: CancelToken,
) -> Assembly:
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
    kernels = kernels_of(store, run, plan)

    def record(trial: Any) -> None:
        with store.write() as session:
            model_runs.add_trial(session, run_id, trial.to_json())

    with open_evaluation_context(model, settings, own_code_only=_own_code_only(settings)) as context:
        assembler = Assembler(model.source, plan, context, run.trials, record, watching.step, cancel)
        assembly = assembler.assemble(kernels)
    with store.write() as session:
        model_runs.set_kept(session, run_id, [kernel.name for kernel in assembly.kernels])
    _stage(store, run_id, "prove")
    return assembly


def _prove(
    run_id: int,
    model: Task,
    assembly: Assembly,
    *,
    settings: Settings,
    store: Store,
    watching: Watching,
    cancel: CancelToken,
) -> EvaluationRecord | None:
    """The evaluation of what is delivered, at full precision; None if nothing is."""
    if not assembly.source:
        return None
    watching.step("measuring what is delivered, at full precision")
    (evaluated,) = evaluate_source(
        model,
        assembly.source,
        origin=f"model run {run_id}",
        settings=settings,
        store=store,
        observe=lambda event: watching.step(str(event.data.get("text", ""))),
        cancel=cancel,
        own_code_only=_own_code_only(settings),
    )
    return evaluated.record


def _own_code_only(settings: Settings) -> bool:
    """Whether all that runs is the user's own model and what the built-in compiler writes."""
    return only_builtin(settings.model, settings.judge_model)


def _deliver(
    run_id: int,
    plan: Plan,
    assembly: Assembly,
    proof: EvaluationRecord | None,
    *,
    settings: Settings,
    store: Store,
) -> ModelReport:
    failed = proof is not None and proof.verdict != Verdict.PASSED
    beaten = proof is not None and bool(faster_baselines(proof))
    with store.write() as session:
        if failed or beaten:
            model_runs.set_kept(session, run_id, [])
        model_runs.finish_run(
            session,
            run_id,
            status=JobStatus.FAILED if failed else JobStatus.DONE,
            stage="done",
            error=f"the proof says {proof.verdict}: {proof.message}"[:500] if failed and proof is not None else None,
            evaluation_id=None if proof is None else proof.id,
        )
        run = model_runs.get_run(session, run_id)
    report = ModelReport(run, proof, None)
    if proof is None or failed or beaten:
        return report
    folder = folder_of(run, settings)
    write_folder(folder, files_of(run, plan, assembly))
    write_whole(folder / "report.md", report_text(report, store))
    return replace(report, delivered=folder)


def faster_baselines(proof: EvaluationRecord) -> list[str]:
    """Those of eager and torch.compile that are faster than what was proven: nothing slower is delivered."""
    speedup = proof.result.get("speedup") or {}
    return [name for name in ("eager", "compile") if name in speedup and speedup[name]["high"] < 1]


def files_of(run: ModelRunRecord, plan: Plan, assembly: Assembly) -> Mapping[str, str]:
    """The delivered files by name, but the report."""
    delivered = put_back(run.task.source, plan.captured, chosen(assembly.kernels))
    return {**delivered.files, CANDIDATE_FILE: assembly.source}


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write the delivered files; kernels of an earlier delivery are removed."""
    (folder / "kernels").mkdir(parents=True, exist_ok=True)
    for old in (folder / "kernels").glob("*.py"):
        if f"kernels/{old.name}" not in files:
            old.unlink()
    for name, text in files.items():
        write_whole(folder / name, text)


def _stage(store: Store, run_id: int, stage: str) -> None:
    with store.write() as session:
        model_runs.set_stage(session, run_id, stage)


@contextlib.contextmanager
def _alone(lock: Path, run_id: int) -> Iterator[None]:
    """Hold a run's lock, which the kernel releases when its holder dies.

    Raises:
        Conflict: another process holds it.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"model run {run_id} is being worked on by another process") from None
        yield
    finally:
        os.close(descriptor)


def _line(error: BaseException) -> str:
    if isinstance(error, Cancelled | KeyboardInterrupt):
        return "stopped"
    known = isinstance(error, BadRequest | SandboxUnavailable | Unavailable)
    return " ".join((str(error) if known else f"{type(error).__name__}: {error}").split())[:500]
