"""What prompts show as good answers are candidates that pass, and are faster than eager."""

import ast
from pathlib import Path

import pytest

from agents.prompting.builder import write_brief
from agents.prompting.parse import candidate_problem
from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from sandbox.base import Sandbox
from tasks.load import load_task
from tasks.metadata import CATEGORIES
from tests.support.cpu_platform import PROMPTS

ROOT = Path(__file__).resolve().parents[2]
EXEMPLARS = load_platform("cpu").prompts().folder / "exemplars"
EFFORT = Effort(wall_s=120, memory_mb=4096, measure_budget_s=2.0, baselines=("eager",), trial=True)
NAMES = sorted(path.stem.removesuffix("_task") for path in EXEMPLARS.glob("*_task.py"))


def _op(path: Path) -> str:
    """What a task file computes: the bodies of its functions but for those that make inputs, without docstrings."""
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    bodies = [
        ast.unparse(ast.Module(node.body[1:] if ast.get_docstring(node) else node.body, []))
        for node in functions
        if node.name not in ("__init__", "get_inputs", "get_init_inputs")
    ]
    return "\n".join(sorted(bodies))


def test_every_category_that_says_what_an_op_does_has_an_exemplar() -> None:
    """`other` names no kind of op, so there is nothing that its exemplar could teach."""
    assert set(NAMES) == set(CATEGORIES) - {"other"}
    assert {path.stem for path in EXEMPLARS.glob("*.py")} == {file for name in NAMES for file in (name, f"{name}_task")}


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_prompt_shows_the_exemplar_of_the_category(category: str) -> None:
    brief = write_brief(task_id="local/op", source="", category=category, dtype="float32", device="", prompts=PROMPTS)
    name = category if category in NAMES else "normalization"
    assert (EXEMPLARS / f"{name}_task.py").read_text() in brief.exemplar
    assert (EXEMPLARS / f"{name}.py").read_text().rstrip() in brief.exemplar


def test_no_exemplar_gives_away_an_op_that_is_built_in() -> None:
    built_in = [*(ROOT / "tasks" / "suites" / "starter").glob("*.py"), *(ROOT / "examples").glob("*.py")]
    assert built_in
    exemplars = {name: EXEMPLARS / f"{name}_task.py" for name in NAMES}
    known = {_op(path): path.name for path in built_in}
    assert not {name: known[_op(path)] for name, path in exemplars.items() if _op(path) in known}
    docstrings = {ast.get_docstring(ast.parse(path.read_text())) for path in built_in}
    assert not [
        name for name, path in exemplars.items() if ast.get_docstring(ast.parse(path.read_text())) in docstrings
    ]


@pytest.mark.parametrize("name", NAMES)
def test_exemplar_keeps_the_rules_that_it_stands_for(name: str) -> None:
    task = load_task(EXEMPLARS / f"{name}_task.py")
    assert (task.category, task.dtype) == (name, "float32")
    assert candidate_problem((EXEMPLARS / f"{name}.py").read_text()) is None


@pytest.mark.docker
@pytest.mark.parametrize("name", NAMES)
def test_exemplar_passes_and_is_faster(name: str, shared_docker_sandbox: Sandbox) -> None:
    evaluation = evaluate(
        load_task(EXEMPLARS / f"{name}_task.py"),
        (EXEMPLARS / f"{name}.py").read_text(),
        sandbox=shared_docker_sandbox,
        platform=load_platform("cpu"),
        effort=EFFORT,
    )
    assert evaluation.verdict == "passed", f"{evaluation.code}: {evaluation.message}\n{evaluation.detail}"
    assert evaluation.speedup is not None
    # A trial, because a few percent do not matter. With other programs on the cores the figures say little, and the
    # evaluation says that.
    least = 0.4 if "noisy" in evaluation.tags else 1.0
    assert evaluation.speedup["eager"].value > least
