"""Pages of the leaderboard. Its rules are in db/leaderboard/rules.py.

A page is read from the table `standings` (db/leaderboard/standings.py). Its cost does not depend on the number of
evaluations.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, func, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from db.leaderboard.rules import Tier
from db.records import LeaderboardEntry, LeaderboardFilters, LeaderboardSort
from db.tables import JobRow, StandingRow

ALL = LeaderboardFilters()

_MAX_VALUE_CHARS = 200
_COLUMNS = tuple(each.name for each in fields(LeaderboardEntry) if each.name != "memory")
# The column of each order, and whether the highest value usually comes first.
_VALUES: dict[LeaderboardSort, tuple[InstrumentedAttribute[Any], bool]] = {
    LeaderboardSort.SPEEDUP: (StandingRow.speedup, True),
    LeaderboardSort.SPEEDUP_COMPILE: (StandingRow.speedup_compile, True),
    LeaderboardSort.SPEEDUP_BEST: (StandingRow.speedup_best, True),
    LeaderboardSort.LATENCY: (StandingRow.candidate_ms, False),
    LeaderboardSort.ROOFLINE: (StandingRow.roofline_fraction, True),
    LeaderboardSort.COST: (StandingRow.cost_usd, False),
    LeaderboardSort.EVALUATED_AT: (StandingRow.evaluated_at, True),
}


def is_descending(sort: LeaderboardSort, descending: bool | None) -> bool:
    """Whether the highest value or the last name comes first.

    Args:
        sort: The order.
        descending: The requested direction, or None for the usual one of this order: the best or latest value first,
            names from A to Z.
    """
    if descending is not None:
        return descending
    return sort in _VALUES and _VALUES[sort][1]


def leaderboard(
    session: Session,
    filters: LeaderboardFilters = ALL,
    *,
    sort: LeaderboardSort = LeaderboardSort.BOARD,
    descending: bool | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[LeaderboardEntry]:
    """A page of the leaderboard.

    Args:
        session: A transaction.
        filters: Conditions on the entries.
        sort: The order.
        descending: The direction; see `is_descending`.
        limit: At most so many entries.
        offset: Leave out so many entries at the beginning.
    """
    found: list[LeaderboardEntry] = []
    for part, order in _parts(filters, sort, is_descending(sort, descending)):
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


def count_entries(session: Session, filters: LeaderboardFilters = ALL) -> int:
    """The number of entries that match the filters."""
    return _count(session, _conditions(filters))


def list_values(session: Session, column: str) -> tuple[str, ...]:
    """The distinct values of a column of the leaderboard, sorted: at most 500, and none longer than 200 characters."""
    values = getattr(StandingRow, column)
    chosen = select(values).where(func.length(values) <= _MAX_VALUE_CHARS).distinct()
    return tuple(session.scalars(chosen.order_by(values).limit(500)))


def count_ranks(session: Session, entries: Sequence[LeaderboardEntry]) -> Counter[tuple[object, ...]]:
    """How many entries share a rank, on the boards of these entries. The keys are `(*board, rank)`."""
    keys = {entry.board for entry in entries}
    columns = (StandingRow.task, StandingRow.source_hash, StandingRow.platform, StandingRow.device, StandingRow.sandbox)
    query = (
        select(*columns, StandingRow.rank, func.count().label("count"))
        .where(tuple_(*columns).in_(keys), StandingRow.rank.is_not(None))
        .group_by(*columns, StandingRow.rank)
    )
    return Counter({tuple(row[:-1]): row.count for row in session.execute(query)})


_Conditions = Sequence[ColumnElement[bool]]
_Order = Sequence[Any]


def _parts(filters: LeaderboardFilters, sort: LeaderboardSort, down: bool) -> list[tuple[_Conditions, _Order]]:
    """Split the leaderboard into consecutive queries with an order each: entries with the sorted value, then without.

    Each query can then be read from the value's index in either direction. The few entries of one task or model are
    filtered first and sorted afterwards instead, because the index would lead through all other entries.
    """
    row = StandingRow
    if sort not in _VALUES:
        return [((), _by_name(sort, down))]
    value = _VALUES[sort][0]
    order = (value.desc(), row.key.desc()) if down else (value.asc(), row.key.asc())
    if filters.task is not None or filters.model is not None:
        return [((), (row.worth, value.is_(None), *order))]
    parts: list[tuple[_Conditions, _Order]] = []
    for tier in Tier:
        if tier is not Tier.NONE_PASSED:
            parts.append(((row.worth == int(tier), value.is_not(None)), order))
        parts.append(((row.worth == int(tier), value.is_(None)), order[1:]))
    return parts


def _by_name(sort: LeaderboardSort, down: bool) -> _Order:
    row = StandingRow
    board = (row.task, row.source_hash, row.platform, row.device, row.sandbox, row.place)
    if sort is LeaderboardSort.MODEL:
        return (row.model.desc() if down else row.model.asc(), *board)
    return (row.task.desc() if down else row.task.asc(), *board[1:])


def _entries(
    session: Session, conditions: _Conditions, order: _Order, limit: int | None, offset: int
) -> list[LeaderboardEntry]:
    chosen = select(StandingRow.key).where(*conditions).order_by(*order)
    if limit is not None or offset:
        chosen = chosen.limit(limit).offset(offset)
    keys = chosen.subquery()
    columns = [getattr(StandingRow, name) for name in _COLUMNS]
    query = select(*columns, JobRow.options["memory"].as_string().label("memory"))
    query = query.join(keys, keys.c.key == StandingRow.key).outerjoin(JobRow, JobRow.id == StandingRow.job_id)
    return [
        LeaderboardEntry(**{**row, "tags": tuple(row["tags"]), "memory": row["memory"] or ""})
        for row in session.execute(query.order_by(*order)).mappings()
    ]


def _count(session: Session, conditions: _Conditions) -> int:
    return session.scalar(select(func.count()).select_from(StandingRow).where(*conditions)) or 0


def _conditions(filters: LeaderboardFilters) -> _Conditions:
    given = {name: getattr(filters, name) for name in LeaderboardFilters.__dataclass_fields__}
    return [getattr(StandingRow, name) == value for name, value in given.items() if value is not None]
