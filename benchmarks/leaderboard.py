"""How long a page of the leaderboard takes, and keeping one more evaluation, in stores of different sizes.

Run: PYTHONPATH=. python benchmarks/leaderboard.py [--sizes 10000 100000 1000000] [--queries 200]
Writes benchmarks/results/leaderboard.md. Stores of all sizes are filled first, on SQLite and on a private PostgreSQL;
then every query goes to each of them in turn, so that all sizes meet the same machine.
"""

import argparse
import contextlib
import datetime
import json
import platform as host
import random
import sqlite3
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import func, insert, select, text

from benchmarks.leaderboard_rows import MODELS, TASKS, Rows, rows_of
from db.engine import open_store
from db.evaluations.results import add_evaluation
from db.leaderboard.query import count_entries, leaderboard
from db.leaderboard.standings import repair_standings, standings_problems
from db.records import LeaderboardFilters, LeaderboardSort, Measurements
from db.store import Store
from db.tables import Base
from tests.support.postgres import started

RESULTS = Path(__file__).parent / "results"
PAGE = 100
MOST_MS = 50.0
MOST_GROWTH = 1.25
_AT_ONCE = 20_000
_AS_SHIPPED: tuple[str, ...] = ("shared_buffers=256MB",)  # the rest as PostgreSQL comes


@dataclass
class Filled:
    """A store of one size, and how long each query took in milliseconds."""

    database: str
    size: int
    store: Store
    fill_s: float
    anew_s: float
    entries: int
    took_ms: dict[str, list[float]] = field(default_factory=dict)

    def time(self, name: str, work: Callable[[Store], object]) -> None:
        """Do it once and keep how long it took."""
        begun = time.perf_counter()
        work(self.store)
        self.took_ms.setdefault(name, []).append((time.perf_counter() - begun) * 1e3)


def page(
    sort: LeaderboardSort = LeaderboardSort.SPEEDUP, descending: bool | None = None, offset: int = 0, **given: str
) -> Callable[[Store], object]:
    """A page with the number of all entries, as the API answers it."""
    filters = LeaderboardFilters(**given)

    def work(store: Store) -> object:
        with store.read() as session:
            found = leaderboard(session, filters, sort=sort, descending=descending, limit=PAGE, offset=offset)
            return found, count_entries(session, filters)

    return work


def queries(entries: int) -> dict[str, Callable[[Store], object]]:
    """What is asked, by its name in the table."""
    return {
        "first page": page(),
        "one suite, platform and model": page(suite="bench", platform="cuda", model=MODELS[3]),
        "one task": page(task=f"bench/{TASKS[100]}"),
        "the slowest first": page(descending=False),
        "by speedup over compile": page(sort=LeaderboardSort.SPEEDUP_COMPILE),
        "by latency, one platform": page(sort=LeaderboardSort.LATENCY, platform="cpu"),
        "by roofline": page(sort=LeaderboardSort.ROOFLINE),
        "by cost": page(sort=LeaderboardSort.COST),
        "by cost, dearest first": page(sort=LeaderboardSort.COST, descending=True),
        "by cost, one model": page(sort=LeaderboardSort.COST, model=MODELS[3]),
        "by date": page(sort=LeaderboardSort.EVALUATED_AT),
        "by model": page(sort=LeaderboardSort.MODEL),
        "board by board": page(sort=LeaderboardSort.BOARD),
        "last page": page(offset=max(0, entries - PAGE)),
        "last page by cost": page(sort=LeaderboardSort.COST, offset=max(0, entries - PAGE)),
        "last page, board by board": page(sort=LeaderboardSort.BOARD, offset=max(0, entries - PAGE)),
    }


def one_more(store: Store, candidates: int, random_: random.Random) -> None:
    """Keep an evaluation of a random candidate, as a worker does."""
    speedup = random_.uniform(0.5, 4.0)
    measured = Measurements(speedup=speedup, speedup_low=speedup - 0.02, speedup_high=speedup + 0.02, candidate_ms=1.0)
    candidate_id = random_.randint(1, candidates)
    with store.write() as session:
        add_evaluation(
            session,
            uuid.uuid4().hex,
            candidate_id=candidate_id,
            round_number=1,
            platform="cpu",
            device="CPU A",
            sandbox="docker",
            verdict="passed",
            code=None,
            message="correct",
            tags=["custom_kernel"],
            measurements=measured,
            result={"schema": "kernelwright.evaluation/1"},
        )


def fill(url: str, size: int) -> Filled:
    """A store with this many evaluations."""
    begun = time.perf_counter()
    store = open_store(url)
    for chunk in rows_of(size, _AT_ONCE):
        _insert(store, chunk)
    with store.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        if store.engine.dialect.name == "postgresql":
            for table in Base.metadata.sorted_tables:  # ids were given, not drawn
                if "id" in table.columns and table.columns["id"].type.python_type is int:
                    highest = select(func.max(table.columns["id"])).scalar_subquery()
                    connection.execute(select(func.setval(func.pg_get_serial_sequence(table.name, "id"), highest)))
        connection.execute(text("ANALYZE"))
    fill_s = time.perf_counter() - begun
    with store.write() as session:
        repair_standings(session)
    begun = time.perf_counter()
    with store.read() as session:
        problems = standings_problems(session)
        entries = count_entries(session)
    if problems:
        raise SystemExit(f"{url}: {problems[0]}")
    anew_s = time.perf_counter() - begun
    if store.engine.dialect.name == "postgresql":
        with store.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.execute(text("VACUUM ANALYZE"))  # autovacuum would, in its own time
    return Filled(store.engine.dialect.name, size, store, fill_s, anew_s, entries)


def _insert(store: Store, chunk: Rows) -> None:
    if store.engine.dialect.name == "sqlite":
        with store.engine.execution_options(immediate=True).begin() as connection:
            for table, rows in chunk.items():
                connection.execute(insert(Base.metadata.tables[table]), rows)
        return
    with contextlib.closing(store.engine.raw_connection()) as connection:
        cursor: Any = connection.cursor()
        for name, rows in chunk.items():
            columns = list(rows[0])
            quoted = ", ".join(f'"{column}"' for column in columns)
            with cursor.copy(f'COPY "{name}" ({quoted}) FROM STDIN') as copy:
                for row in rows:
                    copy.write_row([_cell(row[column]) for column in columns])
        connection.commit()


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value


def percentile(values: list[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(stores: list[Filled], rounds: int) -> None:
    """Ask every store everything, in turn; the first rounds warm caches and do not count."""
    random_ = random.Random(7)  # noqa: S311 made-up figures
    candidates = min(filled.size for filled in stores)
    asked = {id(filled): queries(filled.entries) for filled in stores}
    for number in range(-5, rounds):
        order = random_.sample(stores, len(stores))
        for name in next(iter(asked.values())):
            for filled in order:
                filled.time(name, asked[id(filled)][name])
        for filled in order:
            filled.time("keep one more evaluation", lambda store: one_more(store, candidates, random_))
        if number < 0:
            for filled in stores:
                filled.took_ms.clear()


def report(stores: list[Filled], rounds: int, arguments: list[str]) -> str:
    """The page that is kept."""
    sizes = sorted({filled.size for filled in stores})
    now = datetime.datetime.now(datetime.UTC)
    lines = [
        "# The leaderboard with many evaluations",
        "",
        f"{now:%Y-%m-%d}, {_machine()}, Python {host.python_version()}, SQLite {sqlite3.sqlite_version},",
        f"PostgreSQL {_server_version(stores)} on the same machine through a socket, with its own settings but 256 MB",
        "of shared buffers. Made by:",
        "",
        f"    PYTHONPATH=. python benchmarks/leaderboard.py {' '.join(arguments)}".rstrip(),
        "",
        f"{len(TASKS)} tasks, {len(MODELS)} models, 3 platforms, 2 devices of each. A page is {PAGE} entries with what",
        f"their jobs cost, and the number of all entries. Each query was asked {rounds} times in each store, the",
        "stores in turn. Milliseconds: median and 95th percentile. *Growth*: the largest store over the one before",
        "it, the median of the ratios round by round.",
        "",
    ]
    for database in dict.fromkeys(filled.database for filled in stores):
        of_it = [filled for filled in stores if filled.database == database]
        heads = " | ".join(f"{size:,}" for size in sizes)
        lines += [f"## {database}", "", f"| evaluations | {heads} | growth |", f"| --- |{' ---: |' * (len(sizes) + 1)}"]
        for name in of_it[0].took_ms:
            cells = [
                f"{statistics.median(filled.took_ms[name]):.1f}, {percentile(filled.took_ms[name], 0.95):.1f}"
                for filled in of_it
            ]
            lines.append(f"| {name} | {' | '.join(cells)} | {growth(of_it, name):.2f} |")
        for title, shown in (
            ("entries", [f"{filled.entries:,}" for filled in of_it]),
            ("all entries computed anew and compared (`db check`), s", [f"{filled.anew_s:.1f}" for filled in of_it]),
        ):
            lines.append(f"| {title} | {' | '.join(shown)} | |")
        lines.append("")
    lines += [_verdict(stores), ""]
    return "\n".join(lines)


def growth(of_one: list[Filled], name: str) -> float:
    """How much longer the largest store takes than the next smaller one: the median over the rounds."""
    if len(of_one) < 2:
        return 1.0
    pairs = zip(of_one[-1].took_ms[name], of_one[-2].took_ms[name], strict=True)
    return statistics.median(large / small for large, small in pairs)


def _verdict(stores: list[Filled]) -> str:
    largest = max(filled.size for filled in stores)
    pages = [name for name in stores[0].took_ms if name != "keep one more evaluation"]
    slowest = max(percentile(f.took_ms[name], 0.95) for f in stores if f.size == largest for name in pages)
    grown = max(
        growth([f for f in stores if f.database == database], name)
        for database in {filled.database for filled in stores}
        for name in pages
    )
    kept = "kept" if slowest < MOST_MS and grown <= MOST_GROWTH else "NOT kept"
    return (
        f"Slowest page at {largest:,} evaluations: {slowest:.1f} ms (95th percentile; at most {MOST_MS:.0f}). Largest"
        f" growth of a page: {grown:.2f} (at most {MOST_GROWTH}). Both {kept}."
    )


def _machine() -> str:
    with Path("/proc/cpuinfo").open() as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{len(names)} cores of {names[0]}" if names else host.machine()


def _server_version(stores: list[Filled]) -> str:
    for filled in stores:
        if filled.database == "postgresql":
            with filled.store.read() as session:
                return str(session.scalar(text("SHOW server_version"))).split()[0]
    return "(left out)"


def main() -> int:
    """Fill, measure, write; 1 if the bounds are broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="where the SQLite files go; default: a temporary folder")
    chosen = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = chosen.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(started(_AS_SHIPPED))
        stores = []
        for size in sorted(chosen.sizes):
            for url in (f"sqlite:///{folder}/{size}.db", stack.enter_context(server.database())):
                stores.append(fill(url, size))
                stack.callback(stores[-1].store.close)
                print(f"{stores[-1].database} {size:,}: filled in {stores[-1].fill_s:.0f} s", file=sys.stderr)
        stores.sort(key=lambda filled: (filled.database != "sqlite", filled.size))
        print("measuring", file=sys.stderr)
        measure(stores, chosen.queries)
        page_ = report(stores, chosen.queries, sys.argv[1:])
    (RESULTS / "leaderboard.md").write_text(page_)
    print(page_)
    return 0 if "Both kept." in page_ else 1


if __name__ == "__main__":
    raise SystemExit(main())
