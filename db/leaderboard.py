"""Who wrote the fastest kernel that passed: pages of the leaderboard. Its rules are in db/ranking.py.

The lines are kept ready (db/standings.py), so that a page costs the same whatever the number of evaluations.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from db.tables import JobRow, StandingRow


class Sort(StrEnum):
    """What entries are ordered by. All but `board` and `model` put those without a rank last: they claim nothing."""

    BOARD = "board"  # task by task, each board by place
    TASK = "task"  # the same
    MODEL = "model"
    SPEEDUP = "speedup"
    SPEEDUP_COMPILE = "speedup_compile"
    LATENCY = "latency"
    ROOFLINE = "roofline"
    EVALUATED_AT = "evaluated_at"


@dataclass(frozen=True)
class Entry:
    """A line of the leaderboard. Speedups are ratios, latencies milliseconds; all None where nothing passed.

    `cost_usd` is what the whole job took that brought the candidate forth.
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


_OF_LINE = tuple(name for name in Entry.__dataclass_fields__ if name not in ("cost_usd", "tags"))
_FIGURES: dict[Sort, tuple[InstrumentedAttribute[Any], bool]] = {  # and whether the highest comes first
    Sort.SPEEDUP: (StandingRow.speedup, True),
    Sort.SPEEDUP_COMPILE: (StandingRow.speedup_compile, True),
    Sort.LATENCY: (StandingRow.candidate_ms, False),
    Sort.ROOFLINE: (StandingRow.roofline_fraction, True),
    Sort.EVALUATED_AT: (StandingRow.evaluated_at, True),
}


def leaderboard(
    session: Session,
    *,
    suite: str | None = None,
    platform: str | None = None,
    task: str | None = None,
    model: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    source_hash: str | None = None,
    sort: Sort = Sort.BOARD,
    descending: bool | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[Entry]:
    """A page of the leaderboard. `descending` None is each order's own: the best or latest first, names from A."""
    filters = Filters(suite, platform, task, model, dtype, device, source_hash)
    chosen = select(StandingRow.key).where(*_conditions(filters)).order_by(*_order(sort, descending))
    if limit is not None or offset:
        chosen = chosen.limit(limit).offset(offset)
    keys = chosen.subquery()
    query = (
        select(*(getattr(StandingRow, name) for name in (*_OF_LINE, "tags")), JobRow.cost_usd)
        .join(keys, keys.c.key == StandingRow.key)
        .outerjoin(JobRow, JobRow.id == StandingRow.job_id)
        .order_by(*_order(sort, descending))
    )
    return [_entry(row) for row in session.execute(query).mappings()]


def count_entries(
    session: Session,
    *,
    suite: str | None = None,
    platform: str | None = None,
    task: str | None = None,
    model: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    source_hash: str | None = None,
) -> int:
    """How many entries there are with these filters."""
    conditions = _conditions(Filters(suite, platform, task, model, dtype, device, source_hash))
    return session.scalar(select(func.count()).select_from(StandingRow).where(*conditions)) or 0


def _conditions(filters: Filters) -> list[ColumnElement[bool]]:
    given = {name: getattr(filters, name) for name in Filters.__dataclass_fields__}
    return [getattr(StandingRow, name) == value for name, value in given.items() if value is not None]


def _order(sort: Sort, descending: bool | None) -> list[Any]:
    row = StandingRow
    board: list[Any] = [row.task, row.source_hash, row.platform, row.device, row.sandbox, row.place]
    if sort in _FIGURES:
        figure, highest_first = _FIGURES[sort]
        down = highest_first if descending is None else descending
        return [row.worth, figure.is_(None), figure.desc() if down else figure.asc(), row.key]
    if sort is Sort.MODEL:
        return [row.model.desc() if descending else row.model.asc(), *board]
    return [row.task.desc() if descending else row.task.asc(), *board[1:]]


def _entry(row: Any) -> Entry:
    return Entry(**{name: row[name] for name in _OF_LINE}, tags=tuple(row["tags"]), cost_usd=row["cost_usd"])
