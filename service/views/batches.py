"""The view of a batch: figures by model, fast_p curves, and a table of tasks by models."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from db.records import OPEN, RESUMABLE
from db.store import Store
from service.batches.manage import BatchDetails, list_batches, show_batch
from service.batches.results import Baseline, BatchJob, Group

MAX_TASKS = 300
_BEYOND = 16.0  # speedups above this, and below its reciprocal, have the same colour


@dataclass(frozen=True)
class HeatCell:
    """The jobs of one model on one task.

    Attributes:
        shown: the result in a few characters.
        log: log2 of the speedup, for the colour; None without one.
        outcome: the outcome of the best job, or `open`.
        reason: why there is no speedup.
        job_id: the best job; one that is open if none has a speedup yet.
    """

    shown: str
    log: float | None
    outcome: str
    reason: str
    job_id: int


@dataclass(frozen=True)
class HeatRow:
    """A task with a cell for each column; None for a column without jobs."""

    task: str
    cells: tuple[HeatCell | None, ...]


@dataclass(frozen=True)
class Heat:
    """A table of tasks by models. `left_out` counts the tasks beyond the first `MAX_TASKS`."""

    columns: tuple[str, ...]
    rows: tuple[HeatRow, ...]
    left_out: int


@dataclass(frozen=True)
class BatchView:
    """A batch with its table, and the other batches that it can be compared with (id and name)."""

    details: BatchDetails
    heat: Heat
    others: tuple[tuple[int, str], ...]

    @property
    def is_open(self) -> bool:
        """Whether the batch has jobs that have not ended."""
        return any(status in OPEN for status in self.details.line.counts)

    @property
    def can_resume(self) -> bool:
        """Whether the batch has ended jobs that can be resumed."""
        return not self.details.complete and any(status in RESUMABLE for status in self.details.line.counts)

    @property
    def thresholds(self) -> tuple[float, ...]:
        """All p for which a group has a fast_p, ascending."""
        return tuple(sorted({p for group in self.details.groups for p in group.figures.fast_p}))

    @property
    def passes_at(self) -> tuple[int, ...]:
        """All k for which a group has a pass@k, ascending."""
        return tuple(sorted({k for group in self.details.groups for k in group.figures.pass_at_k}))


def batch_view(store: Store, batch_id: int, *, over: Baseline) -> BatchView:
    """A batch with its figures over a baseline.

    Raises:
        NotInStore: there is no batch with this id.
    """
    details = show_batch(store, batch_id, over=over)
    others = tuple((line.batch.id, line.batch.name) for line in list_batches(store, limit=50))
    return BatchView(details, heat_of(details), tuple(each for each in others if each[0] != batch_id))


def heat_of(details: BatchDetails) -> Heat:
    """The table of what each model reached on each task: the best of its jobs."""
    columns = [(group.model, group.platform) for group in details.groups]
    by_cell: dict[tuple[str, tuple[str, str]], list[BatchJob]] = {}
    tasks: dict[str, str] = {}
    for job in details.jobs:
        tasks.setdefault(job.task_key, job.task)
        by_cell.setdefault((job.task_key, (job.model or "", job.platform)), []).append(job)
    ordered = sorted(tasks, key=lambda key: tasks[key])
    rows = tuple(
        HeatRow(tasks[key], tuple(_heat_cell(by_cell.get((key, column), ()), details.over) for column in columns))
        for key in ordered[:MAX_TASKS]
    )
    return Heat(tuple(column_name(group, details) for group in details.groups), rows, len(ordered) - len(rows))


def column_name(group: Group, details: BatchDetails) -> str:
    """The name of a column: the model, its platform if the batch has several, and whether its figures are no times."""
    several = len({each.platform for each in details.groups}) > 1
    name = f"{group.model} on {group.platform}" if several else group.model
    return details.clock(group.platform).beside(name)


def _heat_cell(jobs: Sequence[BatchJob], over: Baseline) -> HeatCell | None:
    if not jobs:
        return None
    best = max(jobs, key=lambda job: (job.counted_speedup(over) or 0.0, job.outcome == "passed"))
    value = best.counted_speedup(over)
    if value is not None:
        log = math.log2(min(max(value, 1 / _BEYOND), _BEYOND))
        return HeatCell(f"{value:.2f}×" if value < 100 else f"{value:.0f}×", log, "passed", "", best.job)
    if any(job.outcome == "open" for job in jobs):
        pending = next(job for job in jobs if job.outcome == "open")
        return HeatCell("…", None, "open", pending.reason, pending.job)
    words = {"passed": "unsure", "failed": "failed", "unjudged": "not judged"}
    return HeatCell(words[best.outcome], None, best.outcome, best.reason, best.job)
