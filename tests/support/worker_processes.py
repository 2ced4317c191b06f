"""Real workers for tests: processes of `kernelwright worker` that share a store, and what the store and logs say."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from db.evaluations import results
from db.jobs import jobs, workers
from db.records import JobRecord, WorkerStatus
from db.store import Store
from db.tables import LlmCallRow
from sandbox.docker.container import LABEL, OWNER_LABEL
from sandbox.docker.sandbox import connect
from service.database import open_store
from service.settings import Settings, load_settings
from tasks.outcomes import TRIAL
from tasks.task import Task
from tests.support.commands import data_folder
from tests.support.forked_commands import CommandServer
from tests.support.submit import submit

ROOT = Path(__file__).parents[2]
SECRET = "sk-never-in-a-log-4711"
OP = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []
"""
T = TypeVar("T")
DONE = ("done", "failed", "cancelled", "interrupted")


@dataclass
class WorkerProcess:
    """One worker. Its log is a file of JSON lines."""

    process: "subprocess.Popen[bytes]"
    log: Path
    device: int

    @property
    def pid(self) -> int:
        return self.process.pid

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]

    def said(self, start: str, **about: object) -> dict[str, Any] | None:
        """The last line whose message begins so and that has these fields."""
        for line in reversed(self.lines()):
            if line["message"].startswith(start) and about.items() <= line.items():
                return line
        return None

    def wait_for(self, start: str, *, within_s: float = 120.0, **about: object) -> dict[str, Any]:
        return until(lambda: self.said(start, **about), f"{start!r} in the log:\n{self.log.read_text()}", within_s)

    def send(self, number: int) -> float:
        """Send a signal; when that was, by `time.monotonic`."""
        os.kill(self.pid, number)
        return time.monotonic()

    def wait(self, within_s: float = 10.0) -> int:
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"worker {self.pid} does not end:\n{self.log.read_text()}") from None


@dataclass
class Fleet:
    """A store and the workers on it."""

    folder: Path
    environment: dict[str, str]
    settings: Settings
    store: Store
    commands: CommandServer
    started: list[WorkerProcess] = field(default_factory=list)

    def worker(self, device: int = 0, *, ready: bool = True, **environment: str) -> WorkerProcess:
        log = self.folder / f"worker-{len(self.started)}.log"
        with log.open("wb") as stream:
            process = self.commands.start(
                ["worker", "--device", str(device), "--log-format", "json"],
                cwd=ROOT,
                env=self.environment | environment,
                stdout=stream.fileno(),
                stderr=stream.fileno(),
            )
        found = WorkerProcess(process, log, device)
        self.started.append(found)
        if ready:
            found.wait_for("worker ready")
        return found

    def submit(self, *, source: str = OP, user: str = "local", priority: str = "normal", **options: object) -> int:
        settings = self.settings.model_copy(update={"rounds": 1} | options)
        task = Task(name="op", source=source)
        return submit(task, settings=settings, store=self.store, user=user, priority=priority)

    def job(self, job_id: int) -> JobRecord:
        with self.store.read() as session:
            return jobs.get_job(session, job_id)

    def wait_for(self, job_id: int, *status: str, within_s: float = 240.0) -> JobRecord:
        def look() -> JobRecord | None:
            job = self.job(job_id)
            return job if job.status.value in (status or DONE) else None

        logs = "\n".join(worker.log.read_text() for worker in self.started)
        return until(look, f"job {job_id} to be {status or 'over'}, it is {self.job(job_id)};\n{logs}", within_s)

    def evaluated(self, job_id: int) -> list[tuple[str, str]]:
        """Candidate and id of each evaluation of a job, oldest first."""
        with self.store.read() as session:
            return [(each.candidate_hash, each.id) for each in results.list_evaluations(session, job_id)]

    def kinds_of_evaluations(self, job_id: int) -> list[str]:
        """`trial` or `proof` for each evaluation of a job, oldest first; all of them passed."""
        with self.store.read() as session:
            found = results.list_evaluations(session, job_id)
        return ["trial" if TRIAL in each.tags else "proof" for each in found]

    def calls(self, job_id: int) -> list[str]:
        """The ledger keys of a job's calls."""
        with self.store.read() as session:
            return [row[0] for row in session.query(LlmCallRow.key).filter(LlmCallRow.job_id == job_id)]

    def seen(self) -> list[int]:
        """The process ids of the workers that the store takes for alive."""
        with self.store.read() as session:
            return [worker.owner.pid for worker in workers.list_workers(session, live=True)]

    def lost(self, pid: int) -> bool:
        with self.store.read() as session:
            found = [worker for worker in workers.list_workers(session) if worker.owner.pid == pid]
        return found[0].status is WorkerStatus.LOST

    def log_texts(self) -> str:
        return "".join(worker.log.read_text() for worker in self.started)


@contextlib.contextmanager
def fleet(folder: Path, commands: CommandServer, **environment: str) -> Iterator[Fleet]:
    """A new store in `folder`, and workers that are gone at the end with all their containers."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {
        "KERNELWRIGHT_DATA_DIR": str(data_folder(folder)),
        "KERNELWRIGHT_LOCK_DIR": str(folder),
        "KERNELWRIGHT_MEASURE_S": "0.5",
        "KERNELWRIGHT_BASELINES": "eager",
        "KERNELWRIGHT_SANDBOX": "docker",
        "OPENAI_API_KEY": SECRET,
    } | environment
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KERNELWRIGHT_")}
    settings = load_settings(
        data_dir=own["KERNELWRIGHT_DATA_DIR"], database_url=own.get("KERNELWRIGHT_DATABASE_URL"), lock_dir=folder
    )
    store = open_store(settings)
    found = Fleet(folder, inherited | own, settings, store, commands)
    try:
        yield found
    finally:
        for worker in found.started:
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGCONT)
                worker.process.send_signal(signal.SIGKILL)
                worker.process.wait()
        remove_containers([worker.pid for worker in found.started])
        store.close()


def containers(*pids: int) -> list[str]:
    """The ids of the containers that these processes have started."""
    with contextlib.closing(connect()) as client:
        found = client.api.containers(all=True, filters={"label": f"{LABEL}=1"})
    owned = [(summary["Id"], summary["Labels"].get(OWNER_LABEL, "").split(":")[0]) for summary in found]
    return [name for name, pid in owned if pid in map(str, pids)]


def remove_containers(pids: list[int]) -> None:
    found = containers(*pids)
    with contextlib.closing(connect()) as client:
        for name in found:
            with contextlib.suppress(Exception):
                client.api.remove_container(name, force=True)


def until(look: Callable[[], T | None], what: str, within_s: float) -> T:
    """What `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {within_s} s: {what}")


def moment(line: dict[str, Any]) -> float:
    """When a line was logged, in seconds."""
    return datetime.fromisoformat(line["time"]).timestamp()
