"""How long the front page and a task's candidates take in a large store, on SQLite and on PostgreSQL.

Run: python -m benchmarks.overview [--sizes 100000] [--times 50]
Writes benchmarks/results/overview.md. Rows as in benchmarks/leaderboard.py; every question goes to each store in turn.
"""

import argparse
import contextlib
import datetime
import os
import platform as host
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from starlette.testclient import TestClient

from benchmarks.leaderboard import RESULTS, Filled, _machine, _server_version, fill, percentile
from benchmarks.leaderboard_rows import MODELS, TASKS
from db.store import Store
from service.settings import load_settings
from service.views.overview import OverviewQuery, overview, overview_choices
from service.views.task_candidates import task_candidates_view
from tests.support.postgres import started
from web.app import create_app
from web.dependencies import Dependencies
from web.server import keep_from_collections

MOST_MS = 300.0


def asked(store: Store) -> dict[str, Callable[[Store], object]]:
    """What is asked, by its name in the table; `store` is the one that the pages are of."""
    web = TestClient(create_app(Dependencies(load_settings(), store)), base_url="http://127.0.0.1")

    def page(path: str) -> Callable[[Store], object]:
        def work(_: Store) -> object:
            answer = web.get(path)
            assert answer.status_code == 200, answer.text[:200]
            return answer

        return work

    number = 100
    task = ("bench", TASKS[number], f"{number:064x}")
    return {
        "front page: its queries and figures": lambda store: (
            overview(store, OverviewQuery()),
            overview_choices(store),
        ),
        "the same, over torch.compile": lambda store: overview(store, OverviewQuery(over="compile")),
        "the same, a search": lambda store: overview(store, OverviewQuery(text="task_1")),
        "the same, one model": lambda store: overview(store, OverviewQuery(model=MODELS[3])),
        "the same, last page of tasks": lambda store: overview(store, OverviewQuery(page=1000)),
        "front page, whole, as HTML": page("/"),
        "all candidates of a task": lambda store: task_candidates_view(store, *task),
        "a task's page, whole, as HTML": page(f"/tasks/{task[0]}/{task[1]}?source={task[2]}"),
    }


def report(stores: list[Filled], spent_ms: dict[str, list[float]], times: int, arguments: list[str]) -> str:
    """The page that is kept."""
    now = datetime.datetime.now(datetime.UTC)
    heads = [f"{filled.database}, {filled.size:,}" for filled in stores]
    lines = [
        "# The front page with many evaluations",
        "",
        f"{now:%Y-%m-%d}, {_machine()}, Python {host.python_version()}, SQLite {sqlite3.sqlite_version},",
        f"PostgreSQL {_server_version(stores)} on the same machine through a socket. Load of the machine while it was",
        f"measured: {os.getloadavg()[1]:.0f} processes in the mean of five minutes. Made by:",
        "",
        f"    python -m benchmarks.overview {' '.join(arguments)}".rstrip(),
        "",
        f"{len(TASKS)} tasks, {len(MODELS)} models, 3 platforms, 2 devices of each. Each was asked {times} times",
        "in each store, the stores in turn. Milliseconds: median and 95th percentile, of the first store also the",
        "median of the processor time, which other programs lengthen less. Nothing is cached.",
        "",
        f"| evaluations | {' | '.join(heads)} | {heads[0]}, processor time |",
        f"| --- |{' ---: |' * (len(stores) + 1)}",
    ]
    for name in stores[0].took_ms:
        took = [filled.took_ms[name] for filled in stores]
        cells = [f"{statistics.median(each):.0f}, {percentile(each, 0.95):.0f}" for each in took]
        lines.append(f"| {name} | {' | '.join(cells)} | {statistics.median(spent_ms[name]):.0f} |")
    lines.append(f"| entries of the leaderboard | {' | '.join(f'{filled.entries:,}' for filled in stores)} | |")
    return "\n".join([*lines, "", verdict(stores), ""])


def verdict(stores: list[Filled]) -> str:
    """Whether the bound holds for everything that is asked."""
    slowest, name = max((percentile(took, 0.95), name) for filled in stores for name, took in filled.took_ms.items())
    kept = "kept" if slowest < MOST_MS else "NOT kept"
    return f"Slowest: {name}, {slowest:.0f} ms (95th percentile; at most {MOST_MS:.0f}): {kept}."


def main() -> int:
    """Fill, measure, write; 1 if the bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000])
    parser.add_argument("--times", type=int, default=50)
    chosen = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(started(("shared_buffers=256MB",)))
        stores = []
        for size in sorted(chosen.sizes):
            for url in (f"sqlite:///{folder}/{size}.db", stack.enter_context(server.database())):
                stores.append(fill(url, size))
                stack.callback(stores[-1].store.close)
                print(f"{stores[-1].database} {size:,}: filled in {stores[-1].fill_s:.0f} s", file=sys.stderr)
        questions = {id(filled): asked(filled.store) for filled in stores}
        keep_from_collections()  # as the server does
        spent_ms: dict[str, list[float]] = {}
        for number in range(-3, chosen.times):
            for name in next(iter(questions.values())):
                for filled in stores:
                    begun = time.process_time()
                    filled.time(name, questions[id(filled)][name])
                    if filled is stores[0]:
                        spent_ms.setdefault(name, []).append((time.process_time() - begun) * 1e3)
            if number < 0:
                spent_ms.clear()
                for filled in stores:
                    filled.took_ms.clear()
        page_ = report(stores, spent_ms, chosen.times, sys.argv[1:])
    (RESULTS / "overview.md").write_text(page_)
    print(page_)
    return 0 if page_.rstrip().endswith(": kept.") else 1


if __name__ == "__main__":
    raise SystemExit(main())
