"""The overview: what is fast, by whom and at what cost, of one target (a platform, a device and a sandbox).

Only ranked figures count. Each model has one on each task: that of its best candidate, pooled over all evaluations
(db/leaderboard). Where a model has none on a task that it tried, its figure in a mean is 1: who has no kernel that
counts keeps the task's own code. A ranked kernel without a figure over the chosen baseline is not measured, which is no
failure: it is left out of means, and so is its task where no model has a figure. Ranks are over eager.
"""

import hashlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from itertools import groupby
from typing import Literal, NamedTuple

from db.evaluations.tasks import names_with_several_sources
from db.leaderboard.overview import (
    MOST_ENTRIES,
    OverviewEntry,
    OverviewFilters,
    Target,
    list_entries,
    list_targets,
)
from db.leaderboard.query import list_values
from db.leaderboard.rules import Tier
from db.store import Store
from evaluator.platforms import PLATFORM_NAMES, load_platform
from service.views.evaluation import Ratio, ratio
from tasks.outcomes import WALL, Clock, clock_of
from tasks.task import LOCAL_SUITE

Over = Literal["eager", "compile"]

ROWS = 40
"""Tasks on a page of the heat map."""

MOST_MODELS = 12
"""Models in the heat map: those that tried most tasks."""

LEVELS = (1.5, 2.0, 4.0)
"""From these speedups on a cell of the heat map is one level stronger."""

BIN_EDGES = tuple(2 ** (step / 2) for step in range(-2, 9))
"""The edges between the bins of the distribution: from a half to 16, each √2 times the one before."""


@dataclass(frozen=True)
class OverviewQuery:
    """What an overview is asked for.

    Attributes:
        target: the key of a target; by default that with most ranked entries.
        suite, category, dtype, model, text: conditions on the entries; without a value any. `text` is looked for in
            tasks, categories and models.
        over: what speedups are over.
        page: the page of the heat map.
    """

    target: str = ""
    suite: str | None = None
    category: str | None = None
    dtype: str | None = None
    model: str | None = None
    text: str | None = None
    over: Over = "eager"
    page: int = 1


@dataclass(frozen=True)
class TargetChoice:
    """A target that can be chosen by its key."""

    key: str
    target: Target


@dataclass(frozen=True)
class Cell:
    """What a model has on a task.

    Attributes:
        entry: the entry of the leaderboard.
        ratio: its speedup; None without a ranked one.
        level: -1 slower, 0 no difference shown, 1 to 4 faster and by how much; None without a ranked speedup.
        best: whether no other model has a better rank on the task; never over another baseline than eager.
        words: what stands in place of a speedup.
    """

    entry: OverviewEntry
    ratio: Ratio | None
    level: int | None
    best: bool
    words: str


@dataclass(frozen=True)
class TaskRow:
    """A task of the heat map; `ambiguous` says that its name stands for several sources."""

    suite: str
    name: str
    source_hash: str
    ambiguous: bool
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Spread:
    """The distribution of a model's ranked speedups: least, quartiles, greatest."""

    least: float
    lower: float
    middle: float
    upper: float
    greatest: float


@dataclass(frozen=True)
class ModelLine:
    """A model over all tasks that it tried.

    Attributes:
        number: its place in the list, from 1; pictures name it by that.
        tried: tasks that it tried, without those on which its ranked kernel is not measured over the baseline.
        ranked: those on which it has a ranked figure.
        faster: those on which the whole interval is above 1.
        first: those on which it has the first rank, shared or not; None over another baseline than eager.
        mean: the geometric mean over the tasks that it tried; without a ranked figure a task counts as 1. None
            if it tried none.
        mean_ranked: the same over the tasks with a ranked figure alone.
        spread: the distribution of the ranked figures.
        cost_usd: what the jobs that wrote its kernels have cost, as far as it is known; None if none is known.
        unknown_costs: kernels whose job's cost is not known.
    """

    number: int
    model: str
    tried: int
    ranked: int
    faster: int
    first: int | None
    mean: float | None
    mean_ranked: float | None
    spread: Spread | None
    cost_usd: float | None
    unknown_costs: int

    @property
    def usd_per_task(self) -> float | None:
        """The known costs by the task that has a kernel with a known cost; None if some are not known."""
        known = self.ranked - self.unknown_costs
        return None if self.cost_usd is None or self.unknown_costs or not known else self.cost_usd / known


@dataclass(frozen=True)
class Bin:
    """Tasks whose best ranked speedup is from `low` up to `high`; None is no bound."""

    low: float | None
    high: float | None
    tasks: int


@dataclass(frozen=True)
class Progress:
    """What was known at the end of a day: tasks with a kernel that is shown to be faster, and the geometric mean of the
    best ranked speedups, where a task without a faster kernel counts as 1.
    """

    day: date
    faster: int
    mean: float


@dataclass(frozen=True)
class Overview:
    """A page of the overview.

    Attributes:
        targets: the targets that can be chosen, the chosen one's key in `target`; without any there are no entries.
        clock: what figures on the chosen target are measured in.
        over: what speedups are over.
        models: all models, best mean first.
        columns: the models of the heat map.
        rows: the tasks of this page of it.
        tasks, pages, page: how many tasks there are, and which page of how many this is.
        solved: the tasks with a ranked figure.
        unmeasured: those with ranked kernels none of which is measured over this baseline.
        faster: the tasks with a kernel that is shown to be faster.
        best_mean: the geometric mean of the tasks' best ranked speedups.
        bins: the distribution of these.
        progress: how that came about.
        cut: whether there are more entries than are looked at.
    """

    targets: tuple[TargetChoice, ...]
    target: str
    clock: Clock
    over: Over
    models: tuple[ModelLine, ...]
    columns: tuple[str, ...]
    rows: tuple[TaskRow, ...]
    tasks: int
    page: int
    pages: int
    solved: int
    unmeasured: int
    faster: int
    best_mean: float | None
    bins: tuple[Bin, ...]
    progress: tuple[Progress, ...]
    cut: bool


@dataclass(frozen=True)
class OverviewChoices:
    """The values that the overview can be filtered by."""

    suites: tuple[str, ...]
    categories: tuple[str, ...]
    dtypes: tuple[str, ...]
    models: tuple[str, ...]


def overview_choices(store: Store) -> OverviewChoices:
    """The suites, categories, data types and models that occur on the leaderboard."""
    with store.read() as session:
        return OverviewChoices(*(list_values(session, name) for name in ("suite", "category", "dtype", "model")))


def overview(store: Store, query: OverviewQuery) -> Overview:
    """A page of the overview; the last one of the heat map if the query's page does not exist."""
    given = {each.name: getattr(query, each.name) or None for each in fields(OverviewFilters)}
    filters = OverviewFilters(**given)
    with store.read() as session:
        targets = tuple(TargetChoice(target_key(each), each) for each in list_targets(session))
        chosen = next((each for each in targets if each.key == query.target), targets[0] if targets else None)
        entries = [] if chosen is None else list_entries(session, chosen.target, filters)
    measured = [_Measured(each, ranked_ratio(each, query.over)) for each in entries]
    by_task = [
        list(group) for _, group in groupby(measured, key=lambda each: (each.entry.task, each.entry.source_hash))
    ]
    models = _models(measured, query.over)
    columns = tuple(line.model for line in _most_tried(models))
    pages = max(1, -(-len(by_task) // ROWS))
    page = min(max(query.page, 1), pages)
    shown = by_task[ROWS * (page - 1) : ROWS * page]
    with store.read() as session:
        several = names_with_several_sources(session, {group[0].entry.task for group in shown})
    judged = [group for group in by_task if _best(group) is not None or not any(map(_is_unmeasured, group))]
    best = [found for group in judged if (found := _best(group)) is not None]
    return Overview(
        targets=targets,
        target="" if chosen is None else chosen.key,
        clock=WALL if chosen is None else _clock(chosen.target.platform),
        over=query.over,
        models=tuple(models),
        columns=columns,
        rows=tuple(_row(group, columns, several, query.over) for group in shown),
        tasks=len(by_task),
        page=page,
        pages=pages,
        solved=len(best),
        unmeasured=len(by_task) - len(judged),
        faster=sum(_is_faster(each) for each in best),
        best_mean=_mean([math.log(each.value) for each in best]) if best else None,
        bins=bins_of([each.value for each in best]),
        progress=_progress(judged),
        cut=len(entries) >= MOST_ENTRIES,
    )


def _clock(platform: str) -> Clock:
    return clock_of((load_platform(platform).timed,)) if platform in PLATFORM_NAMES else WALL


class _Measured(NamedTuple):
    """An entry with its speedup, if it counts."""

    entry: OverviewEntry
    ratio: Ratio | None


def target_key(target: Target) -> str:
    """A short key for a target, which an address can hold whatever its names are."""
    names = json.dumps([target.platform, target.device, target.sandbox])
    return hashlib.sha256(names.encode()).hexdigest()[:10]


def ranked_ratio(entry: OverviewEntry, over: Over) -> Ratio | None:
    """The speedup of a ranked entry; None for other entries, and where there is none over this baseline."""
    if entry.tier is not Tier.RANKED:
        return None
    if over == "compile":
        found = ratio(entry.speedup_compile, entry.speedup_compile_low, entry.speedup_compile_high)
    else:
        found = ratio(entry.speedup, entry.speedup_low, entry.speedup_high)
    return found if found is not None and found.value > 0 else None


def _best(group: Sequence[_Measured]) -> Ratio | None:
    return max((each.ratio for each in group if each.ratio is not None), key=lambda each: each.value, default=None)


def _is_unmeasured(each: _Measured) -> bool:
    """Whether it is a ranked kernel without a figure over this baseline."""
    return each.entry.tier is Tier.RANKED and each.ratio is None


def _is_faster(found: Ratio) -> bool:
    return (found.value if found.low is None else found.low) > 1


def _models(measured: Sequence[_Measured], over: Over) -> list[ModelLine]:
    by_model: dict[str, list[_Measured]] = {}
    for each in measured:
        by_model.setdefault(each.entry.model, []).append(each)
    lines = [_model_line(model, own, over) for model, own in by_model.items()]
    lines.sort(key=lambda line: (-(line.mean or 0.0), -line.ranked, line.model))
    return [replace(line, number=number) for number, line in enumerate(lines, 1)]


def _model_line(model: str, own: Sequence[_Measured], over: Over) -> ModelLine:
    tried = sum(not _is_unmeasured(each) for each in own)
    found = [(each.entry, each.ratio) for each in own if each.ratio is not None]
    values = sorted(shown.value for _, shown in found)
    logs = [math.log(value) for value in values]
    costs = {each.job_id: each.cost_usd for each, _ in found}
    known = [cost for cost in costs.values() if cost is not None]
    return ModelLine(
        number=0,
        model=model,
        tried=tried,
        ranked=len(found),
        faster=sum(_is_faster(shown) for _, shown in found),
        first=sum(each.rank == 1 for each, _ in found) if over == "eager" else None,
        mean=_mean([*logs, *[0.0] * (tried - len(logs))]) if tried else None,
        mean_ranked=_mean(logs) if logs else None,
        spread=_spread(values) if values else None,
        cost_usd=math.fsum(known) if known else None,
        unknown_costs=sum(each.cost_usd is None for each, _ in found),
    )


def _mean(logs: Sequence[float]) -> float:
    return math.exp(statistics.fmean(logs))


def _spread(values: Sequence[float]) -> Spread:
    """Quartiles between the values, as for a whole population (R's type 7)."""
    several = values if len(values) > 1 else (*values, *values)
    lower, middle, upper = statistics.quantiles(several, n=4, method="inclusive")
    return Spread(values[0], lower, middle, upper, values[-1])


def _most_tried(models: Sequence[ModelLine]) -> list[ModelLine]:
    chosen = sorted(models, key=lambda line: (-line.tried, line.number))[:MOST_MODELS]
    return sorted(chosen, key=lambda line: line.number)


def _row(group: Sequence[_Measured], columns: Sequence[str], several: Container[str], over: Over) -> TaskRow:
    first = group[0].entry
    name = first.task.removeprefix(f"{first.suite}/")
    by_model = {each.entry.model: _cell(each, over) for each in group}
    ambiguous = first.suite == LOCAL_SUITE or first.task in several
    return TaskRow(first.suite, name, first.source_hash, ambiguous, tuple(by_model.get(each) for each in columns))


_WORDS = {Tier.UNRANKED: "no rank", Tier.TRIED: "only tried", Tier.NONE_PASSED: "none passed"}


def _cell(measured: _Measured, over: Over) -> Cell:
    entry, found = measured
    if found is None:
        not_measured = "not over torch.compile" if over == "compile" else "not timed"
        return Cell(entry, None, None, False, _WORDS.get(entry.tier, not_measured))
    low, high = (found.value if end is None else end for end in (found.low, found.high))
    level = -1 if high < 1 else 0 if low <= 1 else 1 + sum(found.value >= least for least in LEVELS)
    return Cell(entry, found, level, over == "eager" and entry.rank == 1, "")


def bins_of(values: Sequence[float]) -> tuple[Bin, ...]:
    """All bins between the outermost that hold something; none without values."""
    counted = Counter(sum(value >= edge for edge in BIN_EDGES) for value in values)
    edges = (None, *BIN_EDGES, None)
    if not counted:
        return ()
    return tuple(Bin(edges[at], edges[at + 1], counted[at]) for at in range(min(counted), max(counted) + 1))


def _progress(by_task: Sequence[Sequence[_Measured]]) -> tuple[Progress, ...]:
    """Day by day, from the kernels that stand on the leaderboard now and the day on which each was written."""
    steps = [
        (each.entry.written_at, number, each.ratio)
        for number, group in enumerate(by_task)
        for each in group
        if each.entry.written_at is not None and each.ratio is not None
    ]
    steps.sort(key=lambda step: step[0])
    best: dict[int, float] = {}
    faster: set[int] = set()
    days: dict[date, Progress] = {}
    total = 0.0
    for at, number, found in steps:
        before = best.get(number, 0.0)
        best[number] = max(before, math.log(found.value))
        total += best[number] - before
        if _is_faster(found):
            faster.add(number)
        days[at.date()] = Progress(at.date(), len(faster), math.exp(total / len(by_task)))
    return tuple(days.values())
