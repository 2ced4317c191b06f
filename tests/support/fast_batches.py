"""Batches that run in milliseconds a job: all real but the evaluator, which answers from the candidate's source."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agents.llm.client import open_llm
from agents.llm.models import import_litellm
from agents.protocols import Event
from db.store import Store
from service.cancellation import CancelToken
from service.database import open_store
from service.jobs import local
from service.jobs import run as job_run
from service.jobs.local import run_batch
from service.mock_llm import Entry, Script, When, start_llm_server
from service.mock_llm.script import FaultName
from service.settings import Settings, load_settings
from tests.fakes import fenced
from tests.support.killable_jobs import opened_quickly

OP = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * {factor}


def get_inputs():
    return [torch.randn(8, 8)]


def get_init_inputs():
    return []
"""


def write_ops(folder: Path, count: int) -> list[str]:
    """So many valid ops in files of their own; their paths."""
    paths = [folder / f"op{number}.py" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_text(OP.format(factor=number + 2))
    return [str(path) for path in paths]


def coder(speeds: list[float], *, delay_s: float = 0.0, fault_first: FaultName | None = None) -> Script:
    """Writes kernels of these speeds, one a call, over and over; 0 is a wrong one. The first call may fail."""
    faults = [] if fault_first is None else [Entry(fault=fault_first, when=When(request="write"))]
    entries = [
        Entry(text=fenced(f"class ModelNew:\n    speed = {speed}\n"), delay_s=delay_s, when=When(request=request))
        for _ in range(200)
        for speed in speeds
        for request in ("write",)
    ]
    return Script(match=(*faults, *entries))


@contextmanager
def quick(
    monkeypatch: pytest.MonkeyPatch, folder: Path, script: Script, **options: object
) -> Iterator[tuple[Settings, Store]]:
    """Settings and a store for jobs whose model is this script."""
    monkeypatch.setattr(local, "open_evaluation_context", opened_quickly)
    monkeypatch.setattr(job_run, "open_models", lambda settings, context, **_: open_llm(api_base=settings.api_base))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with start_llm_server(script) as server:
        common = {"data_dir": folder / "data", "api_base": server.url, "rounds": 1, "price": "1.5,6"}
        settings = load_settings(**(common | options))
        store = open_store(settings)
        try:
            yield settings, store
        finally:
            store.close()


def run_all(batch_id: int, settings: Settings, store: Store, *, observe: Callable[[Event], None] | None = None) -> None:
    """Run what waits of a batch."""
    told = observe or (lambda event: None)
    run_batch(batch_id, settings=settings, store=store, observer_for=lambda job: told, cancel=CancelToken())


def main() -> None:
    """Run what waits of a batch, in a process to kill: `python -m tests.support.fast_batches SETTINGS BATCH`."""
    values, batch_id = json.loads(sys.argv[1]), int(sys.argv[2])
    local.open_evaluation_context = opened_quickly
    job_run.open_models = lambda settings, context, **_: open_llm(api_base=settings.api_base)
    settings = load_settings(**values)
    store = open_store(settings)
    import_litellm()
    print("begins", flush=True)
    run_all(batch_id, settings, store)
    store.close()


if __name__ == "__main__":
    main()
