"""The leaderboard as pages show it: filtered, sorted, cut into pages."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from db import browse
from db.leaderboard import Entry, Sort, count_entries, leaderboard
from db.ranking import UNRELIABLE
from db.store import Store
from service.views.evidence import Ratio, ratio
from tasks.task import LOCAL_SUITE

PAGE = 50

SORTS = tuple(sort.value for sort in Sort)

_FILTERS = ("suite", "platform", "model", "dtype", "task", "source_hash")


@dataclass(frozen=True)
class BoardQuery:
    """What to show; None: everything. `sort` is a name of `SORTS`, with `-` before it for falling order."""

    suite: str | None = None
    platform: str | None = None
    model: str | None = None
    dtype: str | None = None
    task: str | None = None
    sort: str | None = None
    page: int = 1
    source_hash: str | None = None


@dataclass(frozen=True)
class BoardLine:
    """An entry with what the page says of it; `tied` where another one of its board has the same rank, `ambiguous`
    where the task's name does not tell which source was meant.
    """

    entry: Entry
    suite: str
    name: str
    tied: bool
    ambiguous: bool
    unreliable: bool
    eager: Ratio | None
    compile: Ratio | None


@dataclass(frozen=True)
class BoardView:
    """A page of the leaderboard, from line `first` to `last` of `total`; `tags` are those that occur on it."""

    lines: tuple[BoardLine, ...]
    total: int
    page: int
    first: int
    last: int
    sort: str
    tags: tuple[str, ...]


@dataclass(frozen=True)
class BoardChoices:
    """What the leaderboard can be filtered by."""

    suites: tuple[str, ...]
    platforms: tuple[str, ...]
    models: tuple[str, ...]
    dtypes: tuple[str, ...]


def board_view(store: Store, query: BoardQuery, *, page_size: int = PAGE) -> BoardView:
    """A page of the leaderboard; an order that there is none of counts as none, a page past the end as the last."""
    filters = {name: getattr(query, name) or None for name in _FILTERS}
    sort, descending = _order(query.sort)
    with store.read() as session:
        total = count_entries(session, **filters)
        page = max(1, min(query.page, -(-total // page_size)))
        offset = page_size * (page - 1)
        found = leaderboard(session, **filters, sort=sort, descending=descending, limit=page_size, offset=offset)
        shared = browse.shared_ranks(session, [entry for entry in found if entry.rank is not None])
        several = browse.with_several_sources(session, {entry.task for entry in found})
    lines = tuple(_line(entry, shared, several) for entry in found)
    tags = sorted({tag for entry in found for tag in entry.tags})
    shown = "" if query.sort is None or descending is None else query.sort
    return BoardView(lines, total, page, offset + 1 if found else 0, offset + len(found), shown, tuple(tags))


def board_choices(store: Store) -> BoardChoices:
    """The suites, platforms, models and data types that occur on the leaderboard."""
    with store.read() as session:
        return BoardChoices(*(browse.board_values(session, name) for name in ("suite", "platform", "model", "dtype")))


def _order(sort: str | None) -> tuple[Sort, bool | None]:
    name = (sort or "").removeprefix("-")
    if name not in SORTS:
        return Sort.BOARD, None
    return Sort(name), (sort or "").startswith("-")


def _line(entry: Entry, shared: Counter[tuple[object, ...]], several: Collection[str]) -> BoardLine:
    suite, _, name = entry.task.partition("/")
    return BoardLine(
        entry=entry,
        suite=suite,
        name=name,
        ambiguous=suite == LOCAL_SUITE or entry.task in several,
        tied=entry.rank is not None and shared[(*entry.board, entry.rank)] > 1,
        unreliable=bool(set(entry.tags) & set(UNRELIABLE)) and entry.rank is None,
        eager=ratio(entry.speedup, entry.speedup_low, entry.speedup_high),
        compile=ratio(entry.speedup_compile, entry.speedup_compile_low, entry.speedup_compile_high),
    )
