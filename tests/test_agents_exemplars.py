"""What prompts show as good answers are candidates that pass, and are faster than eager."""

from pathlib import Path

import pytest

from agents.parse import candidate_problem
from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from sandbox.base import Sandbox
from tasks.load import load_task

EXEMPLARS = Path(__file__).resolve().parents[1] / "agents" / "exemplars" / "cpu"
EFFORT = Effort(wall_s=120, memory_mb=4096, measure_budget_s=1, baselines=("eager",))
NAMES = sorted(path.stem.removesuffix("_task") for path in EXEMPLARS.glob("*_task.py"))


def test_there_are_exemplars() -> None:
    assert NAMES == ["activation", "normalization"]


@pytest.mark.parametrize("name", NAMES)
def test_exemplar_keeps_the_rules_that_it_stands_for(name: str) -> None:
    task = load_task(EXEMPLARS / f"{name}_task.py")
    assert (task.category, task.dtype) == (name, "float32")
    assert candidate_problem((EXEMPLARS / f"{name}.py").read_text()) is None


@pytest.mark.docker
@pytest.mark.exclusive
@pytest.mark.parametrize("name", NAMES)
def test_exemplar_passes_and_is_faster(name: str, docker_sandbox: Sandbox) -> None:
    evaluation = evaluate(
        load_task(EXEMPLARS / f"{name}_task.py"),
        (EXEMPLARS / f"{name}.py").read_text(),
        sandbox=docker_sandbox,
        platform=load_platform("cpu"),
        effort=EFFORT,
    )
    assert evaluation.verdict == "passed", f"{evaluation.code}: {evaluation.message}\n{evaluation.detail}"
    assert evaluation.speedup is not None and evaluation.speedup["eager"].value > 1.0
