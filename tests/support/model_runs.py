"""Runs over whole models in milliseconds: all real but the capture, which was made before, and the evaluator, which
answers from the kernels' text. As a program, runs that a test can kill."""

import contextlib
import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents.llm.client import open_llm
from agents.llm.models import import_litellm
from db.jobs import jobs, model_runs
from db.records import JobStatus
from db.store import Store
from db.tables import LOCAL_USER
from evaluator.evaluation import Comparison, Evaluation, Interval
from evaluator.platforms import load_platform
from service.cancellation import CancelToken
from service.database import open_store
from service.evaluation_context import EvaluationContext
from service.jobs import local
from service.jobs import run as job_run
from service.settings import Settings, load_settings
from service.submissions.enqueue import queue_model
from service.whole_models.local import Watching, resume_model, run_queued_model
from service.whole_models.run import ModelReport
from tasks.load import find_task
from tasks.outcomes import Verdict, candidate_hash
from tasks.task import REGION_SUITE, Task
from tests.support.killable_jobs import QuickContext, Sandbox

MODEL = '''"""Two chains of element-wise operators with a product between."""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(32, 48)
        self.second = torch.nn.Linear(48, 32)

    def forward(self, x):
        x = self.first(torch.tanh(x * 2.0) + 1.0)
        x = self.second(torch.nn.functional.layer_norm(torch.sigmoid(x), (48,)))
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(64, 32)]


def get_init_inputs():
    return []
'''
PAYS = 1.5
"""The speed of a region's kernel from which on it makes the whole model faster."""

SLOW = 1.7
"""The speed of a kernel with which the whole model is faster than eager and slower than torch.compile."""

BREAKS = 9.0
"""The speed of a kernel with which the whole model is wrong."""

BREAKS_LATE = 8.0
"""The speed of a kernel with which the whole model is wrong in a way that only a proof sees."""


BUSY = "busy"
"""A file in the data folder: while it is there, every proof times out."""


class ModelContext(QuickContext):
    """Gives a model the speed that its kernels make: each adds what it has above `PAYS`, or takes what it lacks."""

    def evaluate(self, source: str, *, champion: str | None = None, **options: Any) -> Evaluation:
        speeds = self.speeds_in(source)
        whole = 1.0 + sum(speed - PAYS for speed in speeds)
        found = super().evaluate(f"speed = {whole:.3f}  # {candidate_hash(source)}", **options)
        trial = {"trial": bool(options.get("trial")), "shape_group": self.shape_group}
        found = replace(found, provenance={**found.provenance, "settings": trial})
        if BREAKS in speeds or (BREAKS_LATE in speeds and not options.get("trial")):
            return replace(found, verdict=Verdict.WRONG_OUTPUT, message="row 3 differs", speedup=None)
        if not options.get("trial") and (self.settings.data_dir / BUSY).exists():
            return replace(found, verdict=Verdict.TIMED_OUT, message="no answer within 20 s", speedup=None)
        if champion is None:
            over = 0.9 if SLOW in speeds else whole
            return replace(
                found, speedup={**(found.speedup or {}), "compile": Interval(over, over * 0.99, over * 1.01)}
            )
        ratio = whole / (1.0 + sum(speed - PAYS for speed in self.speeds_in(champion)))
        decision = "better" if ratio > 1.02 else "worse" if ratio < 0.98 else "alike"
        return replace(
            found, champion=Comparison(candidate_hash(champion), decision, Interval(ratio, ratio, ratio), sets=1)
        )

    def speeds_in(self, source: str) -> list[float]:
        """The speeds of the kernels in a model's source that are for the inputs that are timed."""
        found = re.findall(r"^        '(g\d+_)?r\d\d_\w*': \($|speed = ([\d.]+)", source, re.MULTILINE)
        own, speeds = False, []
        for group, speed in found:
            if speed and own:
                speeds.append(float(speed))
            elif not speed:
                own = group == ("" if self.shape_group is None else f"g{self.shape_group}_")
        return speeds


@contextlib.contextmanager
def opened_for_models(task: Task, settings: Settings, **_: Any) -> Iterator[EvaluationContext]:
    """In place of `open_evaluation_context`: regions are evaluated as any op, and the rest as whole models."""
    kind = QuickContext if task.suite == REGION_SUITE else ModelContext
    yield kind(task, load_platform("cpu"), Sandbox(), settings)  # type: ignore[arg-type]


def replace_what_is_slow(setattr_: Any = setattr) -> None:
    """Have jobs and whole models evaluated by what their sources say, and ask the models of `api_base`."""
    setattr_(local, "open_evaluation_context", opened_for_models)
    setattr_(job_run, "open_models", lambda settings, context, **_: open_llm(api_base=settings.api_base))


def queue_captured(
    path: Path, settings: Settings, store: Store, captured: str, *, out: Path | None = None, plan_only: bool = False
) -> int:
    """Queue a run over the model in a file, whose capture is known already; its id."""
    with store.write() as session:
        run_id = queue_model(
            session, find_task(str(path)), settings=settings, user=LOCAL_USER, priority="normal", plan_only=plan_only
        )
        model_runs.set_capture(session, run_id, captured.encode())
        jobs.update_options(session, run_id, out=None if out is None else str(out))
    return run_id


def carry_out(
    run_id: int,
    settings: Settings,
    store: Store,
    *,
    cancel: CancelToken | None = None,
    delay_s: float = 0.0,
    state: Path | None = None,
) -> ModelReport:
    """Carry out a run that waits, or that was stopped; the latter with the weights in `state`."""

    def step(text: str) -> None:
        time.sleep(delay_s)

    watching = Watching(lambda run_id: None, step, lambda job, number, total: lambda event: None)
    told: Any = {"settings": settings, "store": store, "watching": watching, "cancel": cancel or CancelToken()}
    with store.read() as session:
        waits = jobs.get_job(session, run_id).status is JobStatus.QUEUED
    report = run_queued_model(run_id, **told) if waits else resume_model(run_id, **told, state=state)
    assert report is not None
    return report


def main() -> None:
    """Carry out a run in a process to kill: `python -m tests.support.model_runs SETTINGS RUN`."""
    values, run_id = json.loads(sys.argv[1]), int(sys.argv[2])
    replace_what_is_slow()
    settings = load_settings(**values)
    store = open_store(settings)
    import_litellm()
    print("begins", flush=True)
    carry_out(run_id, settings, store, delay_s=0.05)
    store.close()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
