"""What the overview reads of the leaderboard: the entries of one target, and all candidates of one task.

A target is a platform, a device and a sandbox. Entries of different targets are never compared
(db/leaderboard/rules.py), so an overview is of one target. It is read from the table `standings`; its cost does not
depend on the number of evaluations.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, and_, case, cast, func, or_, select
from sqlalchemy.orm import Session

from db.leaderboard.pooling import is_disqualified, pool_candidate
from db.leaderboard.rules import SUBMITTED, Tier
from db.records import MEASUREMENTS, Measurements
from db.tables import CandidateRow, EvaluationRow, JobRow, StandingRow, TaskRow
from tasks.outcomes import NOT_JUDGED, Verdict

MOST_ENTRIES = 20_000
"""An overview is of so many entries at most."""

MOST_CANDIDATES = 2_000
"""Of a task's candidates the newest are listed, at most so many, and those that come first on a board."""

MOST_EVALUATIONS = 10_000
"""The candidates of a task are told from so many evaluations at most."""

_MOST_TARGETS = 200
_TIER = 5  # the place of `worth` among the columns that are read


@dataclass(frozen=True)
class Target:
    """A platform, device and sandbox with what the leaderboard has of it: all entries, and those that are ranked."""

    platform: str
    device: str
    sandbox: str
    entries: int
    ranked: int


@dataclass(frozen=True)
class OverviewFilters:
    """Conditions on entries; None means any. `text` is looked for in tasks, categories and models, in either case."""

    suite: str | None = None
    category: str | None = None
    dtype: str | None = None
    model: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class OverviewEntry:
    """An entry of the leaderboard as far as an overview needs it.

    Attributes:
        tier: ranked, unranked, tried or without a passed candidate.
        written_at: when the candidate was written; None without one.
        cost_usd: the cost of the job that wrote it; None if it is not known or there is none.
    """

    suite: str
    task: str
    source_hash: str
    category: str
    model: str
    tier: Tier
    rank: int | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    speedup_compile: float | None
    speedup_compile_low: float | None
    speedup_compile_high: float | None
    evaluations: int
    passed: int
    pooled: int
    job_id: int | None
    candidate_hash: str | None
    cost_usd: float | None
    written_at: datetime | None


@dataclass(frozen=True)
class TaskCandidate:
    """A candidate of a task on one target, with its pooled figure.

    Attributes:
        model: who wrote it first.
        job_id: the first job that had it evaluated there.
        tier: what its evaluations bring it to.
        disqualified: whether an evaluation found it wrong; it has no figures then.
        verdict, code: of its newest evaluation.
        evaluations: how many there are of it.
        evaluation_id: the newest of those that its figure stands on, else its newest one.
    """

    platform: str
    device: str
    sandbox: str
    model: str
    hash: str
    job_id: int
    tier: Tier
    disqualified: bool
    verdict: str
    code: str | None
    tags: tuple[str, ...]
    measurements: Measurements
    evaluations: int
    evaluation_id: str
    evaluated_at: datetime


@dataclass(frozen=True)
class TaskCandidates:
    """The candidates of a task. `cut`: there are more, or more evaluations of them."""

    found: list[TaskCandidate]
    cut: bool


def list_targets(session: Session) -> list[Target]:
    """The targets of the leaderboard, first those with most ranked entries: at most 200."""
    ranked = func.sum(case((StandingRow.worth == int(Tier.RANKED), 1), else_=0))
    columns = (StandingRow.platform, StandingRow.device, StandingRow.sandbox)
    query = select(*columns, func.count().label("entries"), ranked.label("ranked")).group_by(*columns)
    found = session.execute(query.order_by(ranked.desc(), func.count().desc(), *columns).limit(_MOST_TARGETS))
    return [Target(row.platform, row.device, row.sandbox, row.entries, row.ranked) for row in found]


def list_entries(session: Session, target: Target, filters: OverviewFilters) -> list[OverviewEntry]:
    """The entries of a target by task and place, at most `MOST_ENTRIES`."""
    row = StandingRow
    columns = (
        *(row.suite, row.task, row.source_hash, row.category, row.model, row.worth, row.rank),
        *(row.speedup, row.speedup_low, row.speedup_high),
        *(row.speedup_compile, row.speedup_compile_low, row.speedup_compile_high),
        *(row.evaluations, row.passed, row.pooled, row.job_id, row.candidate_hash, row.cost_usd),
    )
    query = (
        select(*columns, CandidateRow.created_at)
        .outerjoin(CandidateRow, and_(CandidateRow.job_id == row.job_id, CandidateRow.hash == row.candidate_hash))
        .where(row.platform == target.platform, row.device == target.device, row.sandbox == target.sandbox)
        .where(*_conditions(filters))
        .order_by(row.task, row.source_hash, row.place)
        .limit(MOST_ENTRIES)
    )
    tiers = {int(tier): tier for tier in Tier}
    found = []
    for each in session.execute(query):
        values: list[Any] = list(each)
        values[_TIER] = tiers[values[_TIER]]
        found.append(OverviewEntry(*values))
    return found


def list_task_candidates(session: Session, suite: str, name: str, source_hash: str) -> TaskCandidates:
    """The candidates of all models on a task, target by target and the fastest first, with pooled figures.

    Of more than `MOST_CANDIDATES` the newest, and those that come first on a board. Of more than `MOST_EVALUATIONS`
    evaluations the newest of each candidate.
    """
    task_id = (
        select(TaskRow.id)
        .where(TaskRow.suite == suite, TaskRow.name == name, TaskRow.source_hash == source_hash)
        .scalar_subquery()
    )
    newest = session.scalars(
        select(CandidateRow.hash)
        .join(JobRow, CandidateRow.job_id == JobRow.id)
        .where(JobRow.task_id == task_id)
        .group_by(CandidateRow.hash)
        .order_by(func.max(CandidateRow.id).desc())
        .limit(MOST_CANDIDATES + 1)
    ).all()
    leaders = session.scalars(
        select(StandingRow.candidate_hash)
        .where(StandingRow.task_id == task_id, StandingRow.place == 0, StandingRow.candidate_hash.is_not(None))
        .distinct()
    ).all()
    first = [digest for digest in leaders if digest is not None]
    listed = {*newest[:MOST_CANDIDATES], *first}
    rows = session.execute(_evaluations(task_id, listed, first).limit(MOST_EVALUATIONS + 1)).all()
    cut = len(newest) > MOST_CANDIDATES or len(rows) > MOST_EVALUATIONS
    rows = sorted(rows[:MOST_EVALUATIONS], key=lambda each: (each.platform, each.device, each.sandbox, each.hash))
    found = [
        _candidate(list(group))
        for _, group in groupby(rows, key=lambda each: (each.platform, each.device, each.sandbox, each.hash))
    ]
    found.sort(key=lambda each: (each.tier, -(each.measurements.speedup or 0)))
    return TaskCandidates(sorted(found, key=lambda each: (each.platform, each.device, each.sandbox)), cut)


def _evaluations(task_id: Any, hashes: Collection[str], first: Collection[str]) -> Select[Any]:
    """The evaluations of these candidates of a task: of each kind the newest first, and before all others of `first`.

    Evaluations of a candidate are of one kind if they have the same verdict, code and tags. So whether it was found
    wrong, and what tier it has, can be told from the beginning of the rows.
    """
    on_target = (EvaluationRow.platform, EvaluationRow.device, EvaluationRow.sandbox, CandidateRow.hash)
    kind = (EvaluationRow.verdict, EvaluationRow.code, cast(EvaluationRow.tags, Text))
    age = (EvaluationRow.created_at, EvaluationRow.id)
    model = func.coalesce(JobRow.model, SUBMITTED)
    found = (
        select(
            *on_target,
            func.first_value(CandidateRow.job_id).over(partition_by=on_target, order_by=age).label("job_id"),
            func.first_value(model).over(partition_by=on_target, order_by=age).label("model"),
            func.count().over(partition_by=on_target).label("evaluations"),
            func.row_number()
            .over(partition_by=(*on_target, *kind), order_by=[each.desc() for each in age])
            .label("nth"),
            *(EvaluationRow.id, EvaluationRow.verdict, EvaluationRow.code, EvaluationRow.tags),
            *(EvaluationRow.created_at, *(getattr(EvaluationRow, name) for name in MEASUREMENTS)),
        )
        .join(CandidateRow, EvaluationRow.candidate_id == CandidateRow.id)
        .join(JobRow, CandidateRow.job_id == JobRow.id)
        .where(JobRow.task_id == task_id, CandidateRow.hash.in_(sorted(hashes)))
        .where(EvaluationRow.verdict.not_in(sorted(NOT_JUDGED)), EvaluationRow.retracted_at.is_(None))
        .subquery()
    )
    leads = case((found.c.hash.in_(list(first)), 0), else_=1)
    return select(found).order_by(found.c.nth, leads, found.c.created_at.desc(), found.c.id)


@dataclass(frozen=True)
class _Evaluated:
    """An evaluation in the form that pooling reads."""

    id: str
    verdict: str
    code: str | None
    tags: tuple[str, ...]
    measurements: Measurements
    created_at: datetime
    retracted_at: datetime | None = None


def _candidate(rows: list[Any]) -> TaskCandidate:
    rows.sort(key=lambda row: (row.created_at, row.id))
    evaluated = [
        _Evaluated(
            row.id,
            row.verdict,
            row.code,
            tuple(row.tags),
            Measurements(*row[-len(MEASUREMENTS) :]) if row.verdict == Verdict.PASSED else Measurements(),
            row.created_at,
        )
        for row in rows
    ]
    figure = pool_candidate(evaluated)
    first, last = rows[0], rows[-1]
    return TaskCandidate(
        platform=first.platform,
        device=first.device,
        sandbox=first.sandbox,
        model=first.model,
        hash=first.hash,
        job_id=first.job_id,
        tier=Tier.NONE_PASSED if figure is None else figure.tier,
        disqualified=is_disqualified(evaluated),
        verdict=last.verdict,
        code=last.code,
        tags=tuple(last.tags) if figure is None else figure.tags,
        measurements=Measurements() if figure is None else figure.measurements,
        evaluations=first.evaluations,
        evaluation_id=last.id if figure is None else figure.latest_id,
        evaluated_at=last.created_at if figure is None else figure.latest_at,
    )


def _conditions(filters: OverviewFilters) -> list[ColumnElement[bool]]:
    given = {name: getattr(filters, name) for name in ("suite", "category", "dtype", "model")}
    conditions: list[ColumnElement[bool]] = [
        getattr(StandingRow, name) == value for name, value in given.items() if value is not None
    ]
    if filters.text:
        columns = (StandingRow.task, StandingRow.category, StandingRow.model)
        conditions.append(or_(*(each.icontains(filters.text, autoescape=True) for each in columns)))
    return conditions
