"""The leaderboard as pages show it: filtered, sorted, cut into pages."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from db import jobs, leaderboard
from db.leaderboard import UNRELIABLE, Entry
from db.store import Store
from service.views.evidence import Ratio, ratio

PAGE = 50

SORTS = ("task", "model", "speedup", "compile", "latency", "roofline", "date")


@dataclass(frozen=True)
class BoardQuery:
    """What to show; None: everything. `sort` begins with `-` for falling order."""

    suite: str | None = None
    platform: str | None = None
    model: str | None = None
    dtype: str | None = None
    task: str | None = None
    sort: str | None = None
    page: int = 1


@dataclass(frozen=True)
class BoardLine:
    """An entry with what the page says of it."""

    entry: Entry
    tied: bool
    unreliable: bool
    eager: Ratio | None
    compile: Ratio | None
    cost_usd: float | None
