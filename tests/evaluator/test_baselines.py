"""What candidates are timed against: each baseline judged as a candidate is, and left out where it is not right."""

from typing import Any

import pytest

from evaluator.build_cache import BuildCache
from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from sandbox.base import Sandbox
from tasks.build import task_from_source

pytestmark = [pytest.mark.docker, pytest.mark.timeout(400)]
ALL = ("eager", "compile", "compile-max-autotune", "onnxruntime", "openvino")
EXPORTED = ("eager", "onnxruntime", "openvino")
OP = """
import torch
import torch.nn as nn
{more}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}

def get_inputs():
    return [torch.randn(64, 128)]

def get_init_inputs():
    return []
"""


def op(forward: str, init: str = "pass", more: str = "") -> str:
    return OP.format(forward=forward, init=init, more=more)


def judged(sandbox: Sandbox, source: str, baselines: tuple[str, ...], candidate: str = "", **more: Any) -> Evaluation:
    effort = Effort(wall_s=380, memory_mb=6144, measure_budget_s=0.3, baselines=baselines)
    candidate = candidate or source.replace("class Model(", "class ModelNew(")
    task = task_from_source(source, name="op")
    return evaluate(task, candidate, sandbox=sandbox, platform=load_platform("cpu"), effort=effort, **more)


LINEAR = op("return self.linear(x) * 2", "self.linear = nn.Linear(128, 32)")
SOFTMAX = "return torch.softmax(x, dim=-1)"


def test_all_baselines_are_judged_and_timed(docker_sandbox: Sandbox, tmp_path: Any) -> None:
    cache = BuildCache(tmp_path)
    found = judged(docker_sandbox, LINEAR, ALL, cache=cache)
    assert found.passed, f"{found.message}\n{found.detail}"
    assert found.profile["absent"] == {}
    assert list(found.speedup or {}) == list(ALL)
    assert list(found.latency_ms) == [*ALL, "candidate"]
    assert found.cost_s["baselines"] > 0
    assert set(found.profile["baselines_judged"]) == set(ALL) - {"eager"}
    assert min(found.profile["baselines_judged"].values()) > 5
    assert len([*tmp_path.glob("*.b64")]) == 2, "what both of torch.compile have built"
    again = judged(docker_sandbox, LINEAR, ALL, cache=cache)  # with other parameters
    assert list(again.speedup or {}) == list(ALL), again.profile["absent"]
    assert again.cost_s["baselines"] < found.cost_s["baselines"]


def test_a_library_that_loses_nan_is_a_baseline_for_finite_inputs_alone(docker_sandbox: Sandbox) -> None:
    found = judged(docker_sandbox, op(SOFTMAX), ("eager", "openvino"))
    assert found.passed and set(found.speedup or {}) == {"eager"}
    assert "the reference has nan (inputs: NaN and Inf); right on finite inputs" in found.profile["absent"]["openvino"]
    finite = judged(docker_sandbox, op(SOFTMAX, more='DOMAIN = "finite"'), ("eager", "openvino"))
    assert set(finite.speedup or {}) == {"eager", "openvino"}, finite.profile["absent"]


@pytest.mark.parametrize(
    ("source", "baselines", "words"),
    [
        pytest.param(op("return x.add_(1) * 2"), EXPORTED, "changes input tensor 0 in place", id="changes its input"),
        pytest.param(
            op("self.calls += 1\n        return x * 2", "self.register_buffer('calls', torch.zeros(()))"),
            EXPORTED,
            "calls",
            id="counts its calls",
        ),
        pytest.param(op("return x, 3"), EXPORTED, "gives tensors only", id="gives a number, too"),
        pytest.param(
            op("return x.clone() if torch.compiler.is_compiling() else x + 1"),
            ("eager", "compile"),
            "is no baseline for this task",
            id="is something else where it is compiled",
        ),
    ],
)
def test_a_baseline_that_is_not_right_is_left_out_with_the_reason(
    source: str, baselines: tuple[str, ...], words: str, docker_sandbox: Sandbox
) -> None:
    found = judged(docker_sandbox, source, baselines)
    assert found.passed, f"{found.message}\n{found.detail}"
    assert set(found.speedup or {}) == {"eager"}
    assert set(found.profile["absent"]) == set(baselines) - {"eager"}
    for name, reason in found.profile["absent"].items():
        assert words in reason, f"{name}: {reason}"


TAKES = """
import importlib, os, sys
import torch
import torch.nn as nn

PLACE = "/opt/kernelwright/baselines"
found = []
for name in ("onnxruntime", "openvino", "onnx"):
    sys.path.append(PLACE)
    try:
        importlib.import_module(name)
        found.append(name)
    except ImportError:
        pass
try:
    found += os.listdir(PLACE)
except OSError:
    pass

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(128, 32)

    def forward(self, x):
        if found:
            raise RuntimeError(f"seen: {found}")
        return self.linear(x) * 2
"""


def test_a_candidate_cannot_call_what_baselines_run_on(docker_sandbox: Sandbox) -> None:
    found = judged(docker_sandbox, LINEAR, ("eager", "onnxruntime"), TAKES)
    assert found.passed, f"{found.message}\n{found.detail}"
    assert set(found.speedup or {}) == {"eager", "onnxruntime"}, found.profile["absent"]
