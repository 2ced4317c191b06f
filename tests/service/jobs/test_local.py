"""What a job asks of the evaluator: a profile only where a model will read it."""

import contextlib
import json
from dataclasses import dataclass, field

import pytest

from agents.protocols import Reply, ToolCall
from evaluator.platforms import load_platform
from service.cancellation import CancelToken
from service.database import open_store
from service.jobs import local
from service.jobs import run as job_run
from service.settings import load_settings
from tests.fakes import ScriptedLLM, fenced
from tests.support.commands import OP
from tests.support.killable_jobs import QuickContext, Sandbox

ADVICE = {"bottleneck": "b", "change": "tile it", "evidence": ["latency_ms.candidate"], "stop": False}


@dataclass(frozen=True)
class NotingBench(QuickContext):
    """Notes of each candidate whether it was to be profiled."""

    profiled: list[bool] = field(default_factory=list)

    def evaluate(self, source, *, profile=None, **more):
        self.profiled.append(profile)
        return super().evaluate(source, **more)


def candidate(number):
    return f"class ModelNew:\n    speed = {number}\n"


def tool_calls(number):
    calls = [ToolCall(str(number), "evaluate", json.dumps({"source": candidate(number)}))]
    return Reply("", "openai/m", 100, 10, 0.01, 0.0, tool_calls=tuple(calls))


def replies(strategy):
    if strategy == "tools":
        return [tool_calls(number) for number in (1, 2, 3)]
    advice = fenced(json.dumps(ADVICE), language="json")
    written = [fenced(candidate(number)) for number in (1, 2, 3)]
    return written if strategy == "sample" else [written[0], advice, written[1], advice, written[2]]


@pytest.mark.parametrize(
    ("strategy", "profiled"),
    [("judge", [True, True, False]), ("tools", [True, True, False]), ("sample", [False, False, False])],
)
def test_a_candidate_is_profiled_if_a_model_is_still_to_read_it(monkeypatch, tmp_path, strategy, profiled):
    (tmp_path / "op.py").write_text(OP)
    settings = load_settings(
        data_dir=tmp_path / "data", model="openai/m", strategy=strategy, rounds=3, plateau_rounds=0, roofline_target=1.0
    )
    noted = []

    @contextlib.contextmanager
    def opened(task, settings, **_):
        yield NotingBench(task, load_platform("cpu"), Sandbox(), settings, profiled=noted)

    monkeypatch.setattr(local, "open_evaluation_context", opened)
    monkeypatch.setattr(job_run, "open_models", lambda *_, **__: ScriptedLLM(replies(strategy)))
    store = open_store(settings)
    path = str(tmp_path / "op.py")
    report = local.optimize(path, settings=settings, store=store, observe=lambda event: None, cancel=CancelToken())
    store.close()
    assert report.stop_reason == "rounds"
    assert noted == profiled
