"""The jobs of a batch with their results, and the figures of each model on each platform."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal

from db.records import BestEvaluation, JobRecord, JobStatus, Measurements
from service.batches.statistics import Figures, Sample, best_of, figures
from tasks.outcomes import NOT_JUDGED, RIGHT, UNRANKED, Verdict, is_ranked
from tasks.restrict import split_ref

Baseline = Literal["eager", "compile"]
Outcome = Literal["passed", "failed", "unjudged", "open"]
"""How a job enters the figures. `open`: it has not ended. `unjudged`: the task, the sandbox or the access to the model
failed, which says nothing about the model; such jobs are counted, and left out of every rate and mean."""

_NOT_BUILT = frozenset({Verdict.BUILD_FAILED, *NOT_JUDGED})


@dataclass(frozen=True)
class BatchJob:
    """One job of a batch and its best candidate; the fields are the columns of the CSV and the keys of the JSON form.

    Attributes:
        batch, job, evaluation: ids; `evaluation` is that of the best candidate.
        task: suite/name.
        outcome: how the job enters the figures.
        compiled: whether any candidate compiled.
        reason: in a few words, why the job has no speedup that counts; empty if it has one.
        counts: whether the speedups may be relied on; only then do they enter figures.
        memory: what the job was told of earlier ones: off, similar or all.
        verdict, tags, speedup, latencies, device, candidate_hash: of the best candidate; None or empty without one.
        sandbox: that of the best candidate, or else of the job.
        settings: the options of the job that say what was asked for, and the domain of its task's inputs.
        versions: what judged and timed the best candidate: the referee's digest (`harness`), image, programs, seed.
    """

    batch: int
    job: int
    task: str
    source_hash: str
    category: str
    dtype: str
    platform: str
    model: str | None
    strategy: str | None
    sample: int | None
    status: JobStatus
    stop_reason: str | None
    outcome: Outcome
    compiled: bool
    reason: str
    verdict: str | None
    counts: bool
    tags: tuple[str, ...]
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    speedup_compile: float | None
    speedup_compile_low: float | None
    speedup_compile_high: float | None
    candidate_ms: float | None
    eager_ms: float | None
    compile_ms: float | None
    roofline_fraction: float | None
    speedup_best: float | None
    speedup_best_low: float | None
    speedup_best_high: float | None
    best_baseline: str | None
    device: str | None
    sandbox: str
    candidate_hash: str | None
    evaluation: str | None
    rounds: int
    tokens: int
    cost_usd: float
    unsettled_usd: float
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    memory: str = "off"
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def suite(self) -> str:
        """The suite of the task, which is its level in benchmarks that have levels."""
        return self.task.partition("/")[0]

    @property
    def task_key(self) -> str:
        """The task, pinned by its source: only jobs with the same key are compared."""
        return f"{self.task}@{self.source_hash[:12]}"

    def counted_speedup(self, over: Baseline) -> float | None:
        """The speedup that enters figures."""
        if not self.counts or self.outcome != "passed":
            return None
        return self.speedup if over == "eager" else self.speedup_compile


COLUMNS = tuple(each.name for each in fields(BatchJob))
SETTINGS = (
    *("judge_model", "rounds", "seed", "plateau_rounds", "roofline_target", "price", "memory"),
    *("baselines", "budget_usd", "budget_tokens", "budget_s", "budget_evaluations"),
)
"""The options of a job that exports name. The others are the server's own, or follow from columns."""

_FIGURES = tuple(each.name for each in fields(Measurements))
_MOST_CHARS = 200


@dataclass(frozen=True)
class Group:
    """A model on a platform: the figures of its samples, those of each task's best sample, and what they cost."""

    model: str
    platform: str
    figures: Figures
    best_of: Figures
    jobs: int
    open: int
    unjudged: int
    cost_usd: float
    unsettled_usd: float
    tokens: int
    sandboxes: tuple[str, ...]
    devices: tuple[str, ...]


def batch_jobs(
    batch_id: int,
    jobs: Sequence[JobRecord],
    best: Mapping[int, BestEvaluation],
    verdicts: Mapping[int, Sequence[str]],
) -> tuple[BatchJob, ...]:
    """The jobs of a batch with their results.

    Args:
        batch_id: the batch.
        jobs: its jobs.
        best: the best evaluation of each job that has one, by job id.
        verdicts: the verdicts of all candidates of each job, by job id.
    """
    return tuple(_batch_job(batch_id, job, best.get(job.id), verdicts.get(job.id, ())) for job in jobs)


def samples_of(jobs: Iterable[BatchJob], over: Baseline) -> list[Sample]:
    """The samples that figures are made of: jobs that ended and say something about their model."""
    return [sample for job in jobs if (sample := sample_of(job, over)) is not None]


def sample_of(job: BatchJob, over: Baseline) -> Sample | None:
    """A job as figures see it; None if it has not ended, or says nothing about its model."""
    if job.outcome not in ("passed", "failed"):
        return None
    return Sample(job.task_key, job.sample or 1, job.compiled, job.outcome == "passed", job.counted_speedup(over))


def groups_of(jobs: Sequence[BatchJob], over: Baseline) -> tuple[Group, ...]:
    """The figures of each model on each platform, in the order of their first jobs."""
    by_group: dict[tuple[str, str], list[BatchJob]] = {}
    for job in jobs:
        by_group.setdefault((job.model or "", job.platform), []).append(job)
    return tuple(_group(model, platform, members, over) for (model, platform), members in by_group.items())


def devices_of(jobs: Sequence[BatchJob]) -> tuple[str, ...]:
    """The devices on which these jobs' speedups were measured. Speedups of different devices are not comparable."""
    return tuple(sorted({job.device for job in jobs if job.device is not None}))


def _group(model: str, platform: str, jobs: Sequence[BatchJob], over: Baseline) -> Group:
    samples = samples_of(jobs, over)
    return Group(
        model=model,
        platform=platform,
        figures=figures(samples),
        best_of=figures(best_of(samples)),
        jobs=len(jobs),
        open=sum(job.outcome == "open" for job in jobs),
        unjudged=sum(job.outcome == "unjudged" for job in jobs),
        cost_usd=sum(job.cost_usd for job in jobs),
        unsettled_usd=sum(job.unsettled_usd for job in jobs),
        tokens=sum(job.tokens for job in jobs),
        sandboxes=tuple(sorted({job.sandbox for job in jobs} - {""})),
        devices=devices_of(jobs),
    )


def _batch_job(batch_id: int, job: JobRecord, best: BestEvaluation | None, verdicts: Sequence[str]) -> BatchJob:
    passed = best is not None and best.verdict in RIGHT and best.stands
    return BatchJob(
        batch=batch_id,
        job=job.id,
        task=job.task.ref,
        source_hash=job.task.source_hash,
        category=job.task.category,
        dtype=job.task.dtype,
        platform=job.platform,
        model=job.model,
        strategy=job.strategy,
        sample=job.sample,
        status=job.status,
        stop_reason=job.stop_reason,
        outcome=_outcome(job, passed),
        compiled=passed or _stays_as_it_is(job) or any(verdict not in _NOT_BUILT for verdict in verdicts),
        reason=_reason(job, best, verdicts),
        verdict=None if best is None else best.verdict,
        counts=best is not None and passed and is_ranked(best.tags),
        tags=() if best is None else best.tags,
        **{name: getattr(best, name, None) for name in _FIGURES},
        device=None if best is None else best.device,
        sandbox=job.sandbox if best is None else best.sandbox,
        candidate_hash=None if best is None else best.candidate_hash,
        evaluation=None if best is None else best.id,
        rounds=job.rounds_done,
        tokens=job.tokens,
        cost_usd=job.cost_usd,
        unsettled_usd=job.unsettled_usd,
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        memory=str(job.options.get("memory") or "off"),
        settings=_settings(job),
        versions={} if best is None else _versions(best.provenance),
    )


def _settings(job: JobRecord) -> dict[str, Any]:
    found = {name: value for name in SETTINGS if (value := job.options.get(name)) is not None}
    domain = split_ref(job.task.ref)[1]
    return found if domain is None else found | {"domain": domain}


def _versions(provenance: Mapping[str, Any]) -> dict[str, str]:
    """What an evaluation says of the referee and the programs that it used, as short texts."""
    named = {name: provenance.get(name) for name in ("harness", "image", "image_digest", "seed")}
    programs = provenance.get("versions")
    if isinstance(programs, Mapping):
        named |= {str(name): value for name, value in programs.items()}
    settings = provenance.get("settings")
    if isinstance(settings, Mapping):
        baselines = settings.get("baselines")
        named["baselines"] = ",".join(map(str, baselines)) if isinstance(baselines, list | tuple) else None
        named["measure_budget_s"] = settings.get("measure_budget_s")
    return {name[:_MOST_CHARS]: str(value)[:_MOST_CHARS] for name, value in named.items() if value is not None}


def _stays_as_it_is(job: JobRecord) -> bool:
    """Whether a run over a whole model came to its end and found nothing faster: the model is right, and no faster."""
    return job.status is JobStatus.DONE and job.stop_reason == "nothing_faster"


def _outcome(job: JobRecord, passed: bool) -> Outcome:
    if job.status is JobStatus.DONE or (job.status, job.stop_reason) == (JobStatus.FAILED, "budget"):
        return "passed" if passed or _stays_as_it_is(job) else "failed"
    return "unjudged" if job.status is JobStatus.FAILED else "open"


def _reason(job: JobRecord, best: BestEvaluation | None, verdicts: Sequence[str]) -> str:
    """Why a job has no speedup that counts, in a few words; empty where it has one."""
    if job.status is JobStatus.FAILED:
        return f"{job.stop_reason or 'failed'}: {job.error}" if job.error else job.stop_reason or "failed"
    if job.status is not JobStatus.DONE:
        return job.status.value
    if _stays_as_it_is(job):
        return "nothing faster was found"
    if best is None:
        return verdicts[-1] if verdicts else "no candidate"
    if best.retracted:
        return "retracted"
    if best.refuted:
        return "found wrong when it was evaluated again"
    return ", ".join(tag for tag in best.tags if tag in UNRANKED)
