"""The real application over a real store with a little in it, for the tests of web."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import uvicorn
from starlette.testclient import TestClient

from db.evaluations import results
from db.jobs import jobs
from db.records import JobStatus, Measurements
from db.store import Store
from service.jobs.liveness import this_process
from service.jobs.persistence import save_task
from service.settings import Settings, load_settings
from service.submissions.access import create_token
from tasks.load import task_from_source
from tests.support.new_stores import open_new_store
from web.app import create_app
from web.dependencies import Dependencies
from web.security.timeouts import TimeoutProtocol

LOCAL = "http://127.0.0.1:8765"
OP = """import torch


def op(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(8)]
"""
CANDIDATE = (
    "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.clamp(min=0)\n"
)
OTHER = CANDIDATE.replace("x.clamp(min=0)", "x.clamp_min(0)")
HASHES = ("a" * 64, "b" * 64)


class Web:
    """An application, its store, and clients of it."""

    def __init__(self, store: Store, settings: Settings, *, login: bool, stopping: bool = False) -> None:
        self.store = store
        self.settings = settings
        self.app = create_app(
            Dependencies(settings, store, login=login, session_key=b"k" * 32, stopping=lambda: stopping)
        )

    def client(self, token: str | None = None, base_url: str = LOCAL, **given) -> TestClient:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return TestClient(
            self.app, base_url=base_url, headers=headers, follow_redirects=False, raise_server_exceptions=False, **given
        )

    def token(self, role: str = "operator", user: str = "ada", **limits) -> str:
        return create_token(self.store, name=user, user=user, role=role, **limits)[1]


@contextlib.contextmanager
def opened(folder: Path, *, login: bool = False, stopping: bool = False, **options) -> Iterator[Web]:
    store = open_new_store(folder / "web.db")
    try:
        yield Web(store, load_settings(data_dir=folder, **options), login=login, stopping=stopping)
    finally:
        store.close()


def add_done_job(store: Store, *, name: str = "relu", user: str = "ada", change: str = "first candidate") -> int:
    """A job that is done, with two candidates of which the first passed; its id."""
    task = task_from_source(OP, name=name)
    owner = this_process()
    with store.write() as session:
        job_id = jobs.add_job(
            session,
            task_id=save_task(session, task),
            kind="optimize",
            platform="cpu",
            sandbox="docker",
            owner=owner,
            model="builtin/compiler",
            strategy="judge",
            options={"rounds": 2, "budget_usd": None, "api_base": "http://inside", "api_key_file": "/secret/key"},
        )
        results.add_event(session, job_id, "job_started", 0, {"rounds": 2})
        results.add_event(session, job_id, "round_started", 1, {"request": "write"})
        for number, (digest, source) in enumerate(zip(HASHES, (CANDIDATE, OTHER), strict=True), 1):
            candidate_id = results.add_candidate(
                session, job_id, round_number=number, candidate_hash=digest, source=source
            )
            passed = number == 1
            results.add_evaluation(
                session,
                f"evaluation-{job_id}-{number}",
                candidate_id=candidate_id,
                round_number=number,
                platform="cpu",
                device="CPU A",
                sandbox="docker",
                verdict="passed" if passed else "wrong_output",
                code=None if passed else "values",
                message="",
                tags=["custom_kernel"] if passed else [],
                measurements=Measurements(speedup=2.0, speedup_low=1.9, speedup_high=2.1) if passed else Measurements(),
                result={"verdict": "passed" if passed else "wrong_output", "code": None, "latency_ms": {}},
            )
        results.add_event(session, job_id, "candidate", 1, {"hash": HASHES[0], "change": change})
        jobs.set_best(session, job_id, f"evaluation-{job_id}-1")
        jobs.finish_job(session, job_id, owner, status=JobStatus.DONE, stop_reason="rounds")
        results.add_event(session, job_id, "ended", 1, {"reason": "rounds"})
    return job_id


@contextlib.contextmanager
def listening(web: Web) -> Iterator[str]:
    """The application behind a real uvicorn; its address."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        web.app, http=TimeoutProtocol, log_config=None, access_log=False, timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    address = f"http://127.0.0.1:{sock.getsockname()[1]}"
    try:
        deadline = time.monotonic() + 20
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.02)
        yield address
    finally:
        server.should_exit = True
        thread.join(20)
        sock.close()


def events_of(text: str) -> list[tuple[str, str | None, str]]:
    """A stream's messages: name, id, data."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "data" in fields:
            found.append((fields.get("event", "message"), fields.get("id"), fields["data"]))
    return found


def get(address: str, path: str, **given) -> httpx.Response:
    return httpx.get(address + path, trust_env=False, **given)
