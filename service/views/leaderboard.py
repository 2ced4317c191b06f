"""The leaderboard, for pages and for programs."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from db.evaluations.tasks import names_with_several_sources
from db.leaderboard.query import ALL, count_entries, count_ranks, is_descending, leaderboard, list_values
from db.records import LeaderboardEntry, LeaderboardFilters, LeaderboardSort
from db.store import Store
from evaluator.referee.protocol.baselines import title_of
from service.views.evaluation import Ratio, ratio
from tasks.outcomes import Clock, clock_of, is_ranked
from tasks.task import LOCAL_SUITE

PAGE = 50

SORTS = tuple(sort.value for sort in LeaderboardSort)
_ORDERS = {"asc": False, "desc": True}


@dataclass(frozen=True)
class BoardQuery:
    """A query for a page of the leaderboard. A `sort` not in `SORTS` and an `order` not asc or desc are ignored."""

    filters: LeaderboardFilters = ALL
    sort: str | None = None
    order: str | None = None
    page: int = 1


@dataclass(frozen=True)
class BoardLine:
    """An entry of the leaderboard.

    Attributes:
        entry: the entry.
        suite: the suite of its task.
        name: the name of its task.
        tied: whether another entry of its board has the same rank.
        ambiguous: whether the task's name stands for several sources.
        unreliable: whether it passed, but has no rank.
        eager: the speedup over eager PyTorch.
        compile: the speedup over torch.compile.
        best: the speedup over the fastest of the baselines, which `best_title` names.
    """

    entry: LeaderboardEntry
    suite: str
    name: str
    tied: bool
    ambiguous: bool
    unreliable: bool
    eager: Ratio | None
    compile: Ratio | None
    best: Ratio | None
    best_title: str

    @property
    def clock(self) -> Clock:
        """What its latency and speedups are made of."""
        return clock_of(self.entry.tags)


@dataclass(frozen=True)
class BoardView:
    """A page of the leaderboard: the entries `first` to `last` of `total`, the tags on it, and its order.

    `descending` means that the highest value, the latest date or the last name comes first.
    """

    lines: tuple[BoardLine, ...]
    total: int
    page: int
    first: int
    last: int
    sort: str
    descending: bool
    tags: tuple[str, ...]


@dataclass(frozen=True)
class BoardChoices:
    """The values that the leaderboard can be filtered by."""

    suites: tuple[str, ...]
    platforms: tuple[str, ...]
    models: tuple[str, ...]
    dtypes: tuple[str, ...]


def leaderboard_page(
    store: Store,
    filters: LeaderboardFilters = ALL,
    *,
    sort: LeaderboardSort = LeaderboardSort.SPEEDUP,
    descending: bool | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> tuple[list[LeaderboardEntry], int]:
    """Entries of the leaderboard for programs and the command line.

    Args:
        store: The store.
        filters: Conditions on the entries.
        sort: The order.
        descending: The direction, or None for the usual one of the order.
        limit: At most so many entries.
        offset: Leave out so many entries at the beginning.

    Returns:
        The entries, and the number of all entries that match the filters.
    """
    with store.read() as session:
        entries = leaderboard(session, filters, sort=sort, descending=descending, limit=limit, offset=offset)
        return entries, count_entries(session, filters)


def board_view(
    store: Store, query: BoardQuery, *, otherwise: LeaderboardSort = LeaderboardSort.SPEEDUP, page_size: int = PAGE
) -> BoardView:
    """A page of the leaderboard; the last one if the query's page does not exist.

    Args:
        store: The store.
        query: What to show.
        otherwise: The order if the query has none.
        page_size: The number of entries on a page.
    """
    filters = LeaderboardFilters(**{name: value or None for name, value in vars(query.filters).items()})
    sort = LeaderboardSort(query.sort) if query.sort in SORTS else otherwise
    descending = _ORDERS.get(query.order or "")
    with store.read() as session:
        total = count_entries(session, filters)
        page = max(1, min(query.page, -(-total // page_size)))
        offset = page_size * (page - 1)
        found = leaderboard(session, filters, sort=sort, descending=descending, limit=page_size, offset=offset)
        shared = count_ranks(session, [entry for entry in found if entry.rank is not None])
        several = names_with_several_sources(session, {entry.task for entry in found})
    lines = tuple(_line(entry, shared, several) for entry in found)
    tags = sorted({tag for entry in found for tag in entry.tags})
    first, last = (offset + 1, offset + len(found)) if found else (0, offset)
    return BoardView(lines, total, page, first, last, sort.value, is_descending(sort, descending), tuple(tags))


def board_choices(store: Store) -> BoardChoices:
    """The suites, platforms, models and data types that occur on the leaderboard."""
    with store.read() as session:
        return BoardChoices(*(list_values(session, name) for name in ("suite", "platform", "model", "dtype")))


def _line(entry: LeaderboardEntry, shared: Counter[tuple[object, ...]], several: Collection[str]) -> BoardLine:
    suite, _, name = entry.task.partition("/")
    return BoardLine(
        entry=entry,
        suite=suite,
        name=name,
        ambiguous=suite == LOCAL_SUITE or entry.task in several,
        tied=entry.rank is not None and shared[(*entry.board, entry.rank)] > 1,
        unreliable=not is_ranked(entry.tags) and entry.rank is None,
        eager=ratio(entry.speedup, entry.speedup_low, entry.speedup_high),
        compile=ratio(entry.speedup_compile, entry.speedup_compile_low, entry.speedup_compile_high),
        best=ratio(entry.speedup_best, entry.speedup_best_low, entry.speedup_best_high),
        best_title=title_of(entry.best_baseline or ""),
    )
