"""Runs jobs in processes that a test can kill: one forked for each command that comes in, from a parent that has
imported everything and runs no thread.

A job is real in every part (graph, ledger, store, HTTP) but the evaluator, which answers at once from the source.
"""

import contextlib
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.llm.client import open_llm
from agents.llm.models import import_litellm
from agents.strategies.registry import STRATEGIES, open_strategy
from evaluator.evaluation import Correctness, Evaluation, Interval, Latency
from evaluator.platforms import load_platform
from sandbox.base import Promise
from service.cancellation import CancelToken
from service.database import open_store
from service.evaluation_context import EvaluationContext
from service.jobs import local
from service.jobs import run as job_run
from service.settings import Settings, load_settings
from tasks.load import find_task
from tasks.outcomes import Verdict

EVALUATION_S = 0.02


@dataclass(frozen=True)
class QuickContext(EvaluationContext):
    """Gives each candidate the speed that it names; 0 is a wrong one."""

    def prepare(self) -> None:
        pass

    def device_text(self, **_: Any) -> str:
        return self.platform.device_text(self.device, {})

    def evaluate(self, source: str, **_: Any) -> Evaluation:
        time.sleep(EVALUATION_S)
        digest = hashlib.sha256(source.encode()).hexdigest()
        with Path(self.settings.data_dir / "evaluated").open("a") as log:
            log.write(f"{digest}\n")
        found = re.search(r"speed = ([\d.]+)", source)
        speed = float(found[1]) if found else 0.0
        provenance: dict[str, Any] = {"device": {"name": "test"}, "sandbox": {"name": "docker"}}
        if not speed:
            return Evaluation(
                Verdict.WRONG_OUTPUT, "row 3 differs", code="values", correctness=Correctness(), provenance=provenance
            )
        return Evaluation(
            Verdict.PASSED,
            "correct",
            tags=("custom_kernel",),
            correctness=Correctness(),
            speedup={"eager": Interval(speed, speed * 0.99, speed * 1.01)},
            latency_ms={
                name: Latency(value, value, value) for name, value in (("eager", 4.0), ("candidate", 4 / speed))
            },
            provenance=provenance,
        )


class Sandbox:
    """A name; nothing is run in it."""

    name = "docker"
    promises: frozenset[Promise] = frozenset()  # nothing is built ahead in it


@contextlib.contextmanager
def opened_quickly(task: Any, settings: Settings, **_: Any) -> Iterator[EvaluationContext]:
    """In place of `service.evaluation_context.open_evaluation_context`."""
    yield QuickContext(task, load_platform("cpu"), Sandbox(), settings)  # type: ignore[arg-type]


def run(command: dict[str, Any]) -> int:
    """Start or resume the job that a command names."""
    settings = load_settings(**command["settings"])
    local.open_evaluation_context = opened_quickly
    job_run.open_models = lambda settings, context, **_: open_llm(api_base=settings.api_base)
    store = open_store(settings)
    if command["action"] == "start":
        local.optimize(command["op"], settings=settings, store=store, observe=lambda event: None, cancel=CancelToken())
    else:
        local.resume(1, settings=settings, store=store, observe=lambda event: None, cancel=CancelToken())
    store.close()
    return 0


def main() -> None:
    """Answer commands, one JSON object a line, with the process id of a child, and `exited STATUS` at its end."""
    import_litellm()
    for strategy in STRATEGIES:
        open_strategy(strategy)
    find_task("starter/rmsnorm_gelu")
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = run(json.loads(line))
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(f"exited {status}", flush=True)


if __name__ == "__main__":
    main()
