"""The views of runs over whole models: the list, and one run with its times, regions, decisions and proof."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from db.evaluations import results, tasks
from db.jobs import batches, jobs, model_runs
from db.records import (
    OPEN,
    PLAN_ONLY,
    RESUMABLE,
    BestEvaluation,
    EvaluationRecord,
    JobRecord,
    JobStatus,
    ModelRegionRecord,
    ModelRunHead,
    ModelRunRecord,
    TaskHead,
)
from db.store import Store
from service.batches.manage import NOT_WORTH_IT
from service.jobs.activity import Activity, read_activity
from service.jobs.query import mark_dead_jobs
from service.jobs.spec import OUT
from service.views.changes import last_event_id
from service.views.evaluation import EvaluationView, Ratio, evaluation_view, number, ratio
from tasks.outcomes import OTHER_INPUTS, Decision, Verdict, is_ranked
from whole_models.regions import shape_group_in

PAGE = 50

STAGES = {
    "plan": "its operators are timed and regions are found",
    "optimize": "each region's job looks for a kernel",
    "assemble": "trials of the whole model decide which kernels stay",
    "prove": "what is delivered is measured at full precision",
    "done": "it has come to its end",
}
"""What a run does in each stage."""

QUESTIONS = {
    "passes": "does the model pass with it?",
    "without": "is the model better off without it?",
    "whole": "is one kernel for all of it better?",
    "whole alone": "is the model better with one kernel for all of it?",
    "proof": "does all of it hold at full precision?",
    "proof without": "does it hold at full precision without this one?",
}
"""What a trial asks of a kernel."""

_WHY_OUT = {
    "passes": "the model does not pass with it",
    "without": "the model is no slower without it",
    "whole": "no better than the kernels of its parts",
    "whole alone": "the model is no slower without it",
}


@dataclass(frozen=True)
class ModelRunLine:
    """A run in a list, with what its proof says of the whole model. `counts`: those figures can be relied on.

    `retracted`: someone took the proof back.
    """

    run: ModelRunHead
    eager: Ratio | None
    compile: Ratio | None
    counts: bool
    retracted: bool


@dataclass(frozen=True)
class ModelRunList:
    """A page of runs, newest first. The next page holds runs with a lower id than `next_before`; None on the last."""

    lines: tuple[ModelRunLine, ...]
    next_before: int | None


@dataclass(frozen=True)
class RegionLine:
    """What became of a region.

    Attributes:
        region: the region, with its share of the model's time.
        task: its task.
        job: the job that looked for a kernel; None: there was too little to gain.
        best: the job's best kernel; None: none passed.
        kept: whether that kernel is in what is delivered; None: this is not decided.
        why: the reason in words; empty while nothing is decided.
    """

    region: ModelRegionRecord
    task: TaskHead | None
    job: JobRecord | None
    best: BestEvaluation | None
    kept: bool | None
    why: str

    @property
    def eager(self) -> Ratio | None:
        """The speedup of the kernel alone over eager."""
        best = self.best
        return None if best is None else ratio(best.speedup, best.speedup_low, best.speedup_high)

    @property
    def compile(self) -> Ratio | None:
        """The speedup of the kernel alone over torch.compile."""
        best = self.best
        return (
            None if best is None else ratio(best.speedup_compile, best.speedup_compile_low, best.speedup_compile_high)
        )

    @property
    def unreliable(self) -> bool:
        """Whether the figures of the kernel give it no rank."""
        return self.best is not None and (not self.best.stands or not is_ranked(self.best.tags))


@dataclass(frozen=True)
class RegionAtWork:
    """A region whose job runs, and what that does now; None: it is between two things."""

    name: str
    job_id: int
    activity: Activity | None


@dataclass(frozen=True)
class TrialLine:
    """A decision on one kernel (`service.whole_models.assemble.Trial`), with its question in words.

    `shape_group`: which list of `get_input_groups()` was timed; None: the inputs of `get_inputs()`.
    """

    name: str
    question: str
    asked: str
    decision: str
    ratio: float | None
    taken_out: bool
    message: str
    shape_group: int | None = None

    @property
    def failed(self) -> bool:
        """Whether the model did not pass, so that the decision is a verdict and the message says what was wrong."""
        return self.decision != Verdict.PASSED and self.decision not in set(Decision)


@dataclass(frozen=True)
class EagerLine:
    """A module whose own code stays as it is, and why."""

    path: str
    module_class: str
    reason: str


@dataclass(frozen=True)
class TimePart:
    """A part of a bar: a region, with its share of the model's time under eager."""

    name: str
    share: float


@dataclass(frozen=True)
class TimeBar:
    """The time of one call of the whole model: `name` is eager, compile or candidate. Only eager's has parts."""

    name: str
    ms: float
    parts: tuple[TimePart, ...] = ()

    @property
    def rest(self) -> float:
        """The share of everything else."""
        return max(0.0, 1.0 - sum(part.share for part in self.parts))


@dataclass(frozen=True)
class ModelTimes:
    """Where time went before, and how long a call takes after.

    Attributes:
        bars: eager, torch.compile and the proven candidate, as far as they were measured, all by one measurement.
        proven: whether it is that of the proof; else it is that of the plan.
        by: the regions that eager's time is parted by, which share no operator: `kept`, those with a kernel in what is
            delivered; `found`, those of one choice of all regions; empty: no such choice is known.
    """

    bars: tuple[TimeBar, ...]
    proven: bool
    by: str


@dataclass(frozen=True)
class ShapeLine:
    """A list of inputs of the model's `get_input_groups()` for which kernels were looked for.

    Attributes:
        shape_group: its number.
        eager_ms, compile_ms: the time of a call in the plan; None: it was not measured.
        kept: how many kernels of what is delivered are for it; None: this is not decided.
        proof: what proves the delivered model with these inputs; None: no kernel for them is delivered, or not yet.
    """

    shape_group: int
    eager_ms: float | None
    compile_ms: float | None
    kept: int | None
    proof: EvaluationView | None

    @property
    def eager(self) -> Ratio | None:
        """The speedup of the delivered model over eager."""
        return None if self.proof is None else self.proof.eager

    @property
    def compile(self) -> Ratio | None:
        """The speedup of the delivered model over torch.compile."""
        return None if self.proof is None else self.proof.compile


@dataclass(frozen=True)
class ModelRunView:
    """A run as it stands.

    Attributes:
        run: the run.
        times: where time went.
        compile_s: how long torch.compile took before its first result, in the plan.
        compile_error: why torch.compile was not timed.
        regions: what became of each region.
        at_work: the regions whose jobs run now.
        shapes: other lists of inputs that kernels were looked for.
        as_it_is: lists of inputs that run the original code, with the reason.
        modes: in which modes kernels run, where that matters.
        notes: what else the capture has to say.
        trials: how kernels were chosen, in order.
        stays_eager: modules whose own code stays as it is.
        kernels_ms: under torch.compile: the time of a call in each of its kernels, longest first.
        jobs: the run's jobs by status.
        evaluation: the evaluation of what is delivered: its proof.
        proof: the same, ready to be shown.
        job: the run's own job.
        last_event: the id of the last event of that job.
    """

    run: ModelRunRecord
    times: ModelTimes
    compile_s: float | None
    compile_error: str
    regions: tuple[RegionLine, ...]
    at_work: tuple[RegionAtWork, ...]
    shapes: tuple[ShapeLine, ...]
    as_it_is: tuple[str, ...]
    modes: tuple[str, ...]
    notes: tuple[str, ...]
    trials: tuple[TrialLine, ...]
    stays_eager: tuple[EagerLine, ...]
    kernels_ms: tuple[tuple[str, float], ...]
    jobs: Mapping[JobStatus, int]
    evaluation: EvaluationRecord | None
    proof: EvaluationView | None
    job: JobRecord
    last_event: int

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended, as far as the store knows."""
        return self.run.status in OPEN

    @property
    def can_resume(self) -> bool:
        """Whether the run stopped before its end."""
        return self.run.status in RESUMABLE

    @property
    def proven(self) -> bool:
        """Whether what is delivered passed its proof, and nobody took that back."""
        return self.proof is not None and self.proof.verdict == Verdict.PASSED and self.proof.retracted_at is None

    @property
    def timed_well(self) -> bool:
        """Whether what is delivered passed its proof with figures that can be relied on."""
        return self.proven and self.proof is not None and is_ranked({*self.proof.tags} - {OTHER_INPUTS})

    @property
    def plan_only(self) -> bool:
        """Whether its plan was all that was asked for."""
        return self.run.options.get(PLAN_ONLY) is True

    @property
    def of_machine(self) -> bool:
        """Whether a command began it that has named a folder of its machine."""
        return self.run.options.get(OUT) is not None

    @property
    def last_trial(self) -> str:
        """The last decision on a kernel in a few words; empty before the first."""
        last = self.trials[-1] if self.trials and self.run.stage == "assemble" else None
        return "" if last is None else f"{last.name}: {last.asked} {last.decision}"

    @property
    def jobs_ended(self) -> int:
        """How many of its jobs neither wait nor run."""
        return sum(count for status, count in self.jobs.items() if status not in OPEN)

    @property
    def operators(self) -> int | None:
        """The number of operators that were captured."""
        found = number(self.run.plan.get("operators"))
        return None if found is None else int(found)


def model_run_list(store: Store, *, before: int | None, limit: int = PAGE) -> ModelRunList:
    """A page of runs over whole models, newest first."""
    mark_dead_jobs(store)
    with store.read() as session:
        found = model_runs.list_runs(session, before=before, limit=limit + 1)
        proven = [run.evaluation_id for run in found if run.evaluation_id]
        proofs, retracted = results.list_measurements(session, proven), results.retracted_among(session, proven)
    more = len(found) > limit
    lines = []
    for run in found[:limit]:
        measured, tags = proofs.get(run.evaluation_id or "", (None, ()))
        if measured is None or OTHER_INPUTS in tags:
            lines.append(ModelRunLine(run, None, None, False, False))
            continue
        eager = ratio(measured.speedup, measured.speedup_low, measured.speedup_high)
        compiled = ratio(measured.speedup_compile, measured.speedup_compile_low, measured.speedup_compile_high)
        back = run.evaluation_id in retracted
        lines.append(ModelRunLine(run, eager, compiled, is_ranked(tags) and not back, back))
    return ModelRunList(tuple(lines), found[limit - 1].id if more else None)


def model_run_view(store: Store, run_id: int) -> ModelRunView:
    """A run with all that is known of it. What its plan lacks is shown as missing.

    Raises:
        NotInStore: there is no run with this id.
    """
    mark_dead_jobs(store)
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
        proof = None if run.evaluation_id is None else results.get_evaluation(session, run.evaluation_id)
        counts = {} if run.batch_id is None else batches.count_jobs(session, [run.batch_id])[run.batch_id]
        job = jobs.get_job(session, run_id)
    regions = region_lines(store, run)
    shown = None if proof is None else evaluation_view(proof)
    plan = run.plan
    return ModelRunView(
        run=run,
        times=_times(run, shown),
        compile_s=number(plan.get("compile_s")),
        compile_error=str(plan.get("compile_error") or ""),
        regions=regions,
        at_work=_at_work(store, regions) if run.status in OPEN else (),
        shapes=shape_lines(store, run, proof),
        as_it_is=runs_original_code(plan),
        modes=modes(plan),
        notes=notes(plan),
        trials=tuple(_trial(each) for each in run.trials),
        stays_eager=tuple(
            EagerLine(*(str(each.get(name) or "") for name in ("path", "module_class", "reason")))
            for each in _mappings(plan.get("stays_eager"))
        ),
        kernels_ms=tuple(_kernels(plan.get("kernels_ms"))),
        jobs=counts,
        evaluation=proof,
        proof=shown,
        job=job,
        last_event=last_event_id(store, run_id),
    )


def region_lines(store: Store, run: ModelRunRecord) -> tuple[RegionLine, ...]:
    """What became of each region of a run: its job, its best kernel, and whether that is kept."""
    with store.read() as session:
        of_tasks = tasks.list_heads(session, [region.task_id for region in run.regions])
        records = [] if run.batch_id is None else jobs.list_jobs(session, batch_id=run.batch_id)
        best = {} if run.batch_id is None else batches.best_evaluations(session, run.batch_id)
    by_id = {job.id: job for job in records}
    lines = []
    for region in run.regions:
        found = best.get(region.job_id or 0)
        kept = None if run.kept is None else region.name in run.kept
        job = by_id.get(region.job_id or 0)
        lines.append(RegionLine(region, of_tasks.get(region.task_id), job, found, kept, _why(region, job, found, run)))
    return tuple(lines)


def _at_work(store: Store, regions: Sequence[RegionLine]) -> tuple[RegionAtWork, ...]:
    """The regions whose jobs run; a job that serves several is named once, by the first of them."""
    found: dict[int, RegionAtWork] = {}
    with store.read() as session:
        for line in regions:
            job = line.job
            if job is not None and job.status is JobStatus.RUNNING and job.id not in found:
                activity = read_activity(session, job, results.list_events(session, job.id))
                found[job.id] = RegionAtWork(line.region.name, job.id, activity)
    return tuple(found.values())


def runs_original_code(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """The lists of inputs that run the original code, by a plan; those of versions before knew nothing of others."""
    found = plan.get("as_it_is")
    if found is None and plan.get("shape_groups"):
        return ("get_input_groups()",)
    return tuple(map(str, found)) if isinstance(found, list | tuple) else ()


def modes(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """In which modes kernels run, in words; nothing where the mode does not matter."""
    return _texts(plan.get("modes"))


def notes(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """What else the capture has to say, in words."""
    return _texts(plan.get("notes"))


def _texts(found: Any) -> tuple[str, ...]:
    return tuple(map(str, found)) if isinstance(found, list | tuple) else ()


def shape_lines(store: Store, run: ModelRunRecord, proof: EvaluationRecord | None) -> tuple[ShapeLine, ...]:
    """The other lists of inputs of a run. `proof` is the evaluation of what is delivered."""
    evaluations = {
        each.get("shape_group"): str(each.get("evaluation"))
        for each in run.trials
        if proof is not None
        and each.get("evaluation")
        and each.get("candidate") == proof.candidate_hash
        and each.get("decision") == Verdict.PASSED
    }
    lines = []
    with store.read() as session:
        for each in _mappings(run.plan.get("groups")):
            group = number(each.get("shape_group"))
            if group is None:
                continue
            kept = None if run.kept is None else sum(shape_group_in(name) == group for name in run.kept)
            proven = bool(kept) and group in evaluations
            shown = evaluation_view(results.get_evaluation(session, evaluations[group])) if proven else None
            times = number(each.get("eager_ms")), number(each.get("compile_ms"))
            lines.append(ShapeLine(int(group), *times, kept, shown))
    return tuple(lines)


def _why(region: ModelRegionRecord, job: JobRecord | None, best: BestEvaluation | None, run: ModelRunRecord) -> str:
    """Why a region's kernel is in what is delivered, or is not."""
    if region.job_id is None:
        return "no job: too little to gain" if run.batch_id is not None else ""
    if best is None and job is not None and job.stop_reason == NOT_WORTH_IT:
        return "its job did not run: too little was left to gain"
    if best is None:
        waits = run.stage == "optimize" if job is None else job.status in OPEN
        return "its job has found nothing yet" if waits else "no kernel passed"
    if run.kept is None:
        return ""
    if region.name in run.kept:
        return "kept"
    if region.name in _proven_first(run):
        group = shape_group_in(region.name)
        if group is not None and all(shape_group_in(name) != group for name in run.kept):
            own = [trial.get("decision") for trial in run.trials if trial.get("shape_group") == group]
            last = own[-1] if own else Verdict.PASSED
            why = ", as the others' proofs ask" if last == Verdict.PASSED else f": their last proof says {last}"
            return f"its inputs run the original code{why}"
        return "the proof holds only without it" if run.kept else "the proof refuses it, or finds it slower"
    for trial in reversed(run.trials):
        if trial.get("name") == region.name and trial.get("taken_out"):
            value = number(trial.get("ratio"))
            said = f"{trial.get('decision')}" if value is None else f"{trial.get('decision')}, {value:.3f}"
            return f"{_WHY_OUT.get(str(trial.get('question')), 'a trial took it out')} ({said})"
    if best.speedup is not None and best.speedup <= 1:
        return "no faster than eager"
    if not run.kept and run.evaluation_id is not None:
        return "nothing is delivered, by the proof"
    return "shares operators with one that saves more"


def _proven_first(run: ModelRunRecord) -> set[str]:
    """The regions whose kernels were in place in a proof before which none was taken out, with any of its inputs."""
    found = set[str]()
    for trial in run.trials:
        kernels = trial.get("kernels")
        if trial.get("question") == "proof" and isinstance(kernels, list | tuple):
            found |= {str(name) for name in kernels}
    return found


def _trial(trial: Mapping[str, Any]) -> TrialLine:
    question = str(trial.get("question") or "")
    return TrialLine(
        name=str(trial.get("name") or ""),
        question=question,
        asked=QUESTIONS.get(question, question),
        decision=str(trial.get("decision") or ""),
        ratio=number(trial.get("ratio")),
        taken_out=trial.get("taken_out") is True,
        message=str(trial.get("message") or ""),
        shape_group=None if (group := number(trial.get("shape_group"))) is None else int(group),
    )


def _times(run: ModelRunRecord, proof: EvaluationView | None) -> ModelTimes:
    """The bars of a run. Those of a proof that passed come before those of the plan: they are one measurement."""
    measured: dict[str, float] = {}
    proven = proof is not None and proof.verdict == Verdict.PASSED and OTHER_INPUTS not in proof.tags
    if proof is not None and proven:
        measured = {line.name: line.median_ms for line in proof.latencies}
    if "eager" not in measured:
        named = {"eager": number(run.plan.get("eager_ms")), "compile": number(run.plan.get("compile_ms"))}
        measured, proven = {name: ms for name, ms in named.items() if ms is not None}, False
    by, parts = _parts(run)
    order = ("eager", "compile", "candidate")
    bars = tuple(
        TimeBar(name, measured[name], parts if name == "eager" else ()) for name in order if measured.get(name, 0) > 0
    )
    return ModelTimes(bars, proven, by)


def _parts(run: ModelRunRecord) -> tuple[str, tuple[TimePart, ...]]:
    """Regions that share no operator, largest share first. Those of different grains overlap, and do not add up."""
    kept = [each for each in run.regions if each.name in (run.kept or ()) and shape_group_in(each.name) is None]
    if kept:
        return "kept", _largest_first(TimePart(each.name, each.share) for each in kept)
    apart = [
        TimePart(str(each.get("name") or ""), share)
        for each in _mappings(run.plan.get("apart"))
        if (share := number(each.get("share"))) is not None
    ]
    return ("found", _largest_first(apart)) if apart else ("", ())


def _largest_first(parts: Iterable[TimePart]) -> tuple[TimePart, ...]:
    """The parts with a share, which are made to add up to at most one."""
    found = sorted((part for part in parts if part.share > 0), key=lambda part: (-part.share, part.name))
    scale = max(1.0, sum(part.share for part in found))
    return tuple(TimePart(part.name, part.share / scale) for part in found)


def _kernels(value: object) -> Iterable[tuple[str, float]]:
    for pair in value if isinstance(value, list | tuple) else ():
        if isinstance(pair, list | tuple) and len(pair) == 2 and (ms := number(pair[1])) is not None:
            yield str(pair[0]), ms


def _mappings(value: object) -> Sequence[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []
