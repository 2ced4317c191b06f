"""Who wrote the fastest kernel that passed: pages of the leaderboard. Its rules are in db/leaderboard/rules.py.

The lines are kept ready (db/leaderboard/update.py), so that a page costs the same whatever the number of evaluations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from db.leaderboard.rules import Worth
from db.tables import StandingRow


class Sort(StrEnum):
    """What entries are ordered by. All but `board`, `task` and `model` put those without a rank last, for they claim
    nothing, and before them those without the figure.
    """

    BOARD = "board"  # task by task, each board by place
    TASK = "task"  # the same
    MODEL = "model"
    SPEEDUP = "speedup"
    SPEEDUP_COMPILE = "speedup_compile"
    LATENCY = "latency"
    ROOFLINE = "roofline"
    COST = "cost"
    EVALUATED_AT = "evaluated_at"


@dataclass(frozen=True)
class Entry:
    """A line of the leaderboard. Speedups are ratios, latencies milliseconds; all None where nothing passed.

    `cost_usd` is what the whole job took that brought the candidate forth; None also where nobody knows.
    """

    task: str
    source_hash: str
    category: str
    dtype: str
    platform: str
    device: str
    sandbox: str
    model: str
    evaluations: int
    passed: int
    rank: int | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speedup_compile: float | None = None
    speedup_compile_low: float | None = None
    speedup_compile_high: float | None = None
    candidate_ms: float | None = None
    eager_ms: float | None = None
    compile_ms: float | None = None
    roofline_fraction: float | None = None
    tags: tuple[str, ...] = ()
    job_id: int | None = None
    evaluation_id: str | None = None
    candidate_hash: str | None = None
    evaluated_at: datetime | None = None
    cost_usd: float | None = None

    @property
    def board(self) -> tuple[str, str, str, str, str]:
        """What this entry is ranked within."""
        return (self.task, self.source_hash, self.platform, self.device, self.sandbox)


@dataclass(frozen=True)
class Filters:
    """Which entries; None: all. `task` is `suite/name`, and `source_hash` tells several of one name apart."""

    suite: str | None = None
    platform: str | None = None
    task: str | None = None
    model: str | None = None
    dtype: str | None = None
    device: str | None = None
    source_hash: str | None = None


_COLUMNS = tuple(Entry.__dataclass_fields__)
_FIGURES: dict[Sort, tuple[InstrumentedAttribute[Any], bool]] = {  # and whether the highest comes first
    Sort.SPEEDUP: (StandingRow.speedup, True),
    Sort.SPEEDUP_COMPILE: (StandingRow.speedup_compile, True),
    Sort.LATENCY: (StandingRow.candidate_ms, False),
    Sort.ROOFLINE: (StandingRow.roofline_fraction, True),
    Sort.COST: (StandingRow.cost_usd, False),
    Sort.EVALUATED_AT: (StandingRow.evaluated_at, True),
}
EVERYTHING = Filters()


def falls(sort: Sort, descending: bool | None) -> bool:
    """Whether the highest or last comes first; `descending` None is each order's own way: the best first, or from A."""
    if descending is not None:
        return descending
    return sort in _FIGURES and _FIGURES[sort][1]


def leaderboard(
    session: Session,
    filters: Filters = EVERYTHING,
    *,
    sort: Sort = Sort.BOARD,
    descending: bool | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[Entry]:
    """A page of the leaderboard. `descending` None is each order's own: the best or latest first, names from A."""
    found: list[Entry] = []
    for part, order in _parts(filters, sort, falls(sort, descending)):
        conditions = (*_conditions(filters), *part)
        size = _count(session, conditions) if offset else None
        if size is not None and size <= offset:
            offset -= size
            continue
        left = None if limit is None else limit - len(found)
        found += _entries(session, conditions, order, left, offset)
        offset = 0
        if limit is not None and len(found) >= limit:
            break
    return found


def count_entries(session: Session, filters: Filters = EVERYTHING) -> int:
    """How many entries there are with these filters."""
    return _count(session, _conditions(filters))


_Conditions = Sequence[ColumnElement[bool]]
_Order = Sequence[Any]


def _parts(filters: Filters, sort: Sort, down: bool) -> list[tuple[_Conditions, _Order]]:
    """The leaderboard in pieces that follow one another, each with its order: what has the figure, then what lacks it.

    So each piece is read from the figure's index in either direction. Of one task or model there are few lines, which
    are better found first and sorted then; an index of the figure would lead through all others.
    """
    row = StandingRow
    if sort not in _FIGURES:
        return [((), _by_name(sort, down))]
    figure = _FIGURES[sort][0]
    order = (figure.desc(), row.key.desc()) if down else (figure.asc(), row.key.asc())
    if filters.task is not None or filters.model is not None:
        return [((), (row.worth, figure.is_(None), *order))]
    parts: list[tuple[_Conditions, _Order]] = []
    for worth in Worth:
        if worth is not Worth.NOTHING:
            parts.append(((row.worth == int(worth), figure.is_not(None)), order))
        parts.append(((row.worth == int(worth), figure.is_(None)), order[1:]))
    return parts


def _by_name(sort: Sort, down: bool) -> _Order:
    row = StandingRow
    board = (row.task, row.source_hash, row.platform, row.device, row.sandbox, row.place)
    if sort is Sort.MODEL:
        return (row.model.desc() if down else row.model.asc(), *board)
    return (row.task.desc() if down else row.task.asc(), *board[1:])


def _entries(session: Session, conditions: _Conditions, order: _Order, limit: int | None, offset: int) -> list[Entry]:
    chosen = select(StandingRow.key).where(*conditions).order_by(*order)
    if limit is not None or offset:
        chosen = chosen.limit(limit).offset(offset)
    keys = chosen.subquery()
    query = select(*(getattr(StandingRow, name) for name in _COLUMNS)).join(keys, keys.c.key == StandingRow.key)
    return [Entry(**{**row, "tags": tuple(row["tags"])}) for row in session.execute(query.order_by(*order)).mappings()]


def _count(session: Session, conditions: _Conditions) -> int:
    return session.scalar(select(func.count()).select_from(StandingRow).where(*conditions)) or 0


def _conditions(filters: Filters) -> _Conditions:
    given = {name: getattr(filters, name) for name in Filters.__dataclass_fields__}
    return [getattr(StandingRow, name) == value for name, value in given.items() if value is not None]
