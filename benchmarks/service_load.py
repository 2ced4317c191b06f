"""How the server answers while many watch jobs and others submit some.

Run: python -m benchmarks.service_load [--watchers 100] [--submissions 50] [--seconds 60] [--database-url URL]
Writes benchmarks/results/service_load.md. A real `kernelwright serve` (without a worker, so that nothing else takes the
processor), on SQLite or on the database of the URL, which must be empty. Ten jobs run; each has two events a second,
which stand for all that a live page shows. Watchers hold a stream of server-sent events each; submissions a minute are
POST requests with an op; and once a second one client opens the leaderboard's page and requests it from the API.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import httpx

from db.evaluations import results
from db.jobs import jobs
from db.store import Store
from service.database import open_store
from service.jobs.liveness import this_process
from service.jobs.persistence import save_task
from service.settings import load_settings
from tasks.load import find_task
from tests.support.commands import OP

RESULTS = Path(__file__).parent / "results"
RUNNING_JOBS = 10
EVENTS_A_SECOND = 2.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Figures:
    """What was measured, in milliseconds, by name."""

    def __init__(self) -> None:
        self.took_ms: dict[str, list[float]] = {}
        self.failed: list[str] = []

    def add(self, name: str, took_s: float) -> None:
        """Keep one figure."""
        self.took_ms.setdefault(name, []).append(took_s * 1000)


def start_jobs(store: Store) -> list[int]:
    """Jobs that this process seems to run."""
    task = find_task("starter/gelu_tanh")
    with store.write() as session:
        task_id = save_task(session, task)
        return [
            jobs.add_job(
                session,
                task_id=task_id,
                kind="optimize",
                platform="cpu",
                sandbox="docker",
                owner=this_process(),
                model="builtin/compiler",
                strategy="judge",
                options={"rounds": 6},
            )
            for _ in range(RUNNING_JOBS)
        ]


async def write_events(store: Store, job_ids: Sequence[int], until: float) -> None:
    """Two events a second in each job, spread evenly."""
    number = 0
    while time.time() < until:
        job_id = job_ids[number % len(job_ids)]
        number += 1

        def write(job_id: int = job_id) -> None:
            with store.write() as session:
                results.add_event(session, job_id, "load", 1, {"sent": time.time()})

        await asyncio.to_thread(write)
        await asyncio.sleep(1 / EVENTS_A_SECOND / len(job_ids))


async def watch(client: httpx.AsyncClient, job_id: int, until: float, figures: Figures) -> None:
    """Hold one stream, and note how long after it was written each event comes."""
    async with client.stream("GET", f"/api/v1/jobs/{job_id}/events") as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                event = json.loads(line[5:])
                if event.get("kind") == "load":
                    figures.add("event, written to received", time.time() - event["data"]["sent"])
            if time.time() > until:
                return


async def submit(client: httpx.AsyncClient, a_minute: float, until: float, figures: Figures) -> None:
    """Submissions at an even pace."""
    number = 0
    while time.time() < until:
        number += 1
        body = {"source": OP, "name": f"load_{number}", "rounds": 2}
        began_s = time.perf_counter()
        answer = await client.post("/api/v1/jobs", json=body, headers={"Idempotency-Key": f"load-{number}"})
        figures.add("POST a job", time.perf_counter() - began_s)
        if answer.status_code != 201:
            figures.failed.append(f"POST {answer.status_code}: {answer.text[:200]}")
        await asyncio.sleep(max(0.0, 60 / a_minute - (time.perf_counter() - began_s)))


async def read(client: httpx.AsyncClient, path: str, name: str, until: float, figures: Figures) -> None:
    """Someone who looks once a second."""
    while time.time() < until:
        began_s = time.perf_counter()
        answer = await client.get(path)
        figures.add(name, time.perf_counter() - began_s)
        if answer.status_code != 200:
            figures.failed.append(f"GET {path} {answer.status_code}")
        await asyncio.sleep(1.0)


async def load(url: str, store: Store, arguments: argparse.Namespace) -> Figures:
    """Everything at once."""
    figures = Figures()
    job_ids = start_jobs(store)
    until = time.time() + arguments.seconds
    limits = httpx.Limits(max_connections=arguments.watchers + 20)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=30) as client:
        watchers = [watch(client, job_ids[index % len(job_ids)], until, figures) for index in range(arguments.watchers)]
        await asyncio.gather(
            write_events(store, job_ids, until + 1),
            submit(client, arguments.submissions, until, figures),
            read(client, "/", "GET the leaderboard's page", until, figures),
            read(client, "/api/v1/leaderboard", "GET the leaderboard by the API", until, figures),
            *watchers,
        )
    return figures


def processor_s(pid: int) -> float:
    """Seconds of processor that a process has used (proc(5): fields 14 and 15 of stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mib(pid: int) -> float:
    """Memory that a process holds, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def main() -> int:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--submissions", type=float, default=50.0, help="a minute")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--database-url")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "KERNELWRIGHT_DATA_DIR": folder}
        if arguments.database_url:
            environment["KERNELWRIGHT_DATABASE_URL"] = arguments.database_url
        command = [sys.executable, "-m", "web", "serve", "--port", "0", "--no-worker"]
        with (
            Path(folder, "server.log").open("wb") as log,
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log) as server,
        ):
            assert server.stdout is not None
            try:
                url = server.stdout.readline().decode().strip()
                store = open_store(load_settings(data_dir=Path(folder), database_url=arguments.database_url))
                idle_mib, before_s, began_s = resident_mib(server.pid), processor_s(server.pid), time.time()
                figures = asyncio.run(load(url, store, arguments))
                wall_s = time.time() - began_s
                share = (processor_s(server.pid) - before_s) / wall_s
                busy_mib = resident_mib(server.pid)
                kind = store.engine.dialect.name
                store.close()
            finally:
                server.terminate()
                server.communicate(timeout=30)
    lines = [
        f"## {kind}: {arguments.watchers} watchers, {arguments.submissions:.0f} submissions a minute",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {wall_s:.0f} s, "
        f"`python -m benchmarks.service_load --watchers {arguments.watchers} "
        f"--submissions {arguments.submissions:.0f} --seconds {arguments.seconds:.0f}`",
        "",
        "| what | count | median ms | 95 % ms | longest ms |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, took in sorted(figures.took_ms.items()):
        high = statistics.quantiles(took, n=20)[18] if len(took) > 1 else took[0]
        lines.append(f"| {name} | {len(took)} | {statistics.median(took):.1f} | {high:.1f} | {max(took):.1f} |")
    lines += [
        "",
        f"The server used {share * 100:.0f} % of a core and held {busy_mib:.0f} MiB ({idle_mib:.0f} MiB idle). "
        f"Requests that failed: {len(figures.failed)}.",
        *figures.failed[:5],
        "",
    ]
    print("\n".join(lines))
    target = RESULTS / "service_load.md"
    kept = target.read_text() if target.exists() else "# The server under load\n\n"
    parts = [part for part in kept.split("\n## ") if not part.startswith(f"{kind}:")]
    target.write_text("\n## ".join([*parts, "\n".join(lines).removeprefix("## ")]))
    return 1 if figures.failed else 0


if __name__ == "__main__":
    sys.exit(main())
