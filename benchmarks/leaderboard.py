"""How long a page of the leaderboard takes, and keeping one more evaluation, in stores of different sizes.

Run: PYTHONPATH=. python benchmarks/leaderboard.py [--sizes 10000 100000 1000000] [--queries 200] [--database sqlite]
Writes benchmarks/results/leaderboard.md. Stores of all sizes are filled first, on SQLite and on a private PostgreSQL;
then every query goes to each of them in turn, so that all sizes meet the same machine.
"""

import contextlib
import json
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import insert, text

from benchmarks.leaderboard_rows import MODELS, TASKS, Rows, rows_of
from db.engine import open_store
from db.leaderboard import Sort, count_entries, leaderboard
from db.records import Measured
from db.results import add_evaluation
from db.standings_check import mend_standings, standings_problems
from db.store import Store
from db.tables import Base

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


def page(**given: Any) -> Callable[[Store], object]:
    """A page with the number of all entries, as the API answers it."""
    filters = {name: value for name, value in given.items() if name not in ("sort", "offset")}

    def work(store: Store) -> object:
        with store.read() as session:
            found = leaderboard(session, **given, limit=PAGE)
            return found, count_entries(session, **filters)

    return work


def queries(entries: int) -> dict[str, Callable[[Store], object]]:
    """What is asked, by its name in the table."""
    return {
        "first page": page(),
        "one suite, platform and model": page(suite="bench", platform="cuda", model=MODELS[3]),
        "one task": page(task=f"bench/{TASKS[100]}"),
        "by speedup": page(sort=Sort.SPEEDUP),
        "by latency, one platform": page(sort=Sort.LATENCY, platform="cpu"),
        "by model": page(sort=Sort.MODEL),
        "last page": page(offset=max(0, entries - PAGE)),
    }


def one_more(store: Store, random_: random.Random) -> None:
    """Keep an evaluation of a random candidate, as a worker does."""
    speedup = random_.uniform(0.5, 4.0)
    measured = Measured(speedup=speedup, speedup_low=speedup - 0.02, speedup_high=speedup + 0.02, candidate_ms=1.0)
    candidate_id = random_.randrange(1, 10_001)
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
            measured=measured,
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
                    sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
                    connection.execute(text(f"SELECT setval({sequence}, (SELECT max(id) FROM {table.name}) + 1)"))
        connection.execute(text("ANALYZE"))
    fill_s = time.perf_counter() - begun
    with store.write() as session:
        mend_standings(session)
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
