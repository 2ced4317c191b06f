"""What became of a batch's jobs: which count, and the figures of each model on each platform."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from db.records import BestEvaluation, JobRecord, JobStatus
from service.batches.statistics import Figures, Sample, best_of, figures
from tasks.outcomes import NOT_JUDGED, UNRANKED, Verdict, is_ranked

Baseline = Literal["eager", "compile"]
Outcome = Literal["passed", "failed", "unjudged", "open"]
"""What a job's figures count as. `open`: it has not ended. `unjudged`: the task, the sandbox or the access to the model
failed, which says nothing of the model; such jobs are told by number and left out of every rate and mean."""

_NOT_BUILT = frozenset({Verdict.BUILD_FAILED, *NOT_JUDGED})


@dataclass(frozen=True)
class Cell:
    """One job of a batch with what it delivered. `speedup…` are those of its best candidate, as they were measured;
    `counts` says whether they may be relied on, and only then do they enter figures."""

    job: JobRecord
    outcome: Outcome
    compiled: bool
    best: BestEvaluation | None
    counts: bool
    reason: str

    @property
    def key(self) -> str:
        """The task, pinned by its source: what is compared with what."""
        return f"{self.job.task.ref}@{self.job.task.source_hash[:12]}"

    def speedup(self, over: Baseline) -> float | None:
        """The speedup that enters figures."""
        if self.best is None or not self.counts or self.outcome != "passed":
            return None
        return self.best.speedup if over == "eager" else self.best.speedup_compile


@dataclass(frozen=True)
class Group:
    """A model on a platform: the figures of a single try and of the best of each task's tries, and what it all took."""

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


def cells_of(
    jobs: Sequence[JobRecord], best: Mapping[int, BestEvaluation], verdicts: Mapping[int, Sequence[str]]
) -> tuple[Cell, ...]:
    """Each job with what it delivered."""
    return tuple(_cell(job, best.get(job.id), verdicts.get(job.id, ())) for job in jobs)


def samples_of(cells: Sequence[Cell], over: Baseline) -> list[Sample]:
    """The tries that figures are made of: jobs that ended and say something of their model."""
    return [
        Sample(cell.key, cell.job.sample or 1, cell.compiled, cell.outcome == "passed", cell.speedup(over))
        for cell in cells
        if cell.outcome in ("passed", "failed")
    ]


def groups_of(cells: Sequence[Cell], over: Baseline) -> tuple[Group, ...]:
    """The figures of each model on each platform, in the order of their first jobs."""
    by_group: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        by_group.setdefault((cell.job.model or "", cell.job.platform), []).append(cell)
    return tuple(_group(model, platform, members, over) for (model, platform), members in by_group.items())


def _group(model: str, platform: str, cells: Sequence[Cell], over: Baseline) -> Group:
    tries = samples_of(cells, over)
    return Group(
        model=model,
        platform=platform,
        figures=figures(tries),
        best_of=figures(best_of(tries)),
        jobs=len(cells),
        open=sum(cell.outcome == "open" for cell in cells),
        unjudged=sum(cell.outcome == "unjudged" for cell in cells),
        cost_usd=sum(cell.job.cost_usd for cell in cells),
        unsettled_usd=sum(cell.job.unsettled_usd for cell in cells),
        tokens=sum(cell.job.tokens for cell in cells),
        sandboxes=tuple(sorted({cell.best.sandbox if cell.best else cell.job.sandbox for cell in cells} - {""})),
        devices=devices_of(cells),
    )


def devices_of(cells: Sequence[Cell]) -> tuple[str, ...]:
    """On which devices the speedups were measured that these jobs delivered; those of several are of several kinds."""
    return tuple(sorted({cell.best.device for cell in cells if cell.best is not None}))


def _cell(job: JobRecord, best: BestEvaluation | None, verdicts: Sequence[str]) -> Cell:
    passed = best is not None and best.verdict == Verdict.PASSED and not best.retracted
    return Cell(
        job=job,
        outcome=_outcome(job, passed),
        compiled=passed or any(verdict not in _NOT_BUILT for verdict in verdicts),
        best=best,
        counts=best is not None and passed and is_ranked(best.tags),
        reason=_reason(job, best, verdicts),
    )


def _outcome(job: JobRecord, passed: bool) -> Outcome:
    if job.status is JobStatus.DONE or (job.status, job.stop_reason) == (JobStatus.FAILED, "budget"):
        return "passed" if passed else "failed"
    return "unjudged" if job.status is JobStatus.FAILED else "open"


def _reason(job: JobRecord, best: BestEvaluation | None, verdicts: Sequence[str]) -> str:
    """Why a job has no speedup that counts, in a few words; empty where it has one."""
    if job.status is JobStatus.FAILED:
        return f"{job.stop_reason or 'failed'}: {job.error}" if job.error else job.stop_reason or "failed"
    if job.status is not JobStatus.DONE:
        return job.status.value
    if best is None:
        return verdicts[-1] if verdicts else "no candidate"
    if best.retracted:
        return "retracted"
    return ", ".join(tag for tag in best.tags if tag in UNRANKED)
