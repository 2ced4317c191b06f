"""The built-in suite: complete, well formed, found when installed; and the examples are its ops."""

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tasks.load import load_task
from tasks.suites import list_suites, load_suite
from tasks.task import Task, TaskError
from tasks.validate import validate

ROOT = Path(__file__).parents[2]
STARTER = load_suite("starter").tasks
WANTED = {
    "activation",
    "normalization",
    "reduce",
    "attention",
    "matmul",
    "convolution",
    "pooling",
    "broadcast",
    "index",
    "loss",
    "scan",
    "optimizer",
    "resize",
    "fuse",
}
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

each_task = pytest.mark.parametrize("task", STARTER, ids=lambda task: task.name)


def top_level(source: str) -> dict[str, ast.stmt]:
    """The definitions and constants of a file by name."""
    named: dict[str, ast.stmt] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            named[statement.name] = statement
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            named[statement.targets[0].id] = statement
    return named


def body_of(function: ast.stmt) -> list[str]:
    """What a function does, without its name and signature."""
    assert isinstance(function, ast.FunctionDef)
    return [ast.dump(statement) for statement in function.body]


def test_the_suite_is_listed() -> None:
    assert list_suites() == ("starter",)


def test_it_has_every_category_that_it_promises() -> None:
    assert {task.category for task in STARTER} == WANTED
    assert len(STARTER) >= 14


def test_its_order_and_names_are_stable() -> None:
    names = [task.name for task in STARTER]
    assert names == sorted(set(names))
    assert all(task.suite == "starter" and task.id == f"starter/{task.name}" for task in STARTER)


@pytest.mark.parametrize("name", ["startre", "Starter", "../starter", "", ".", "__pycache__"])
def test_an_unknown_suite_is_refused(name: str) -> None:
    with pytest.raises(TaskError, match="no such suite"):
        load_suite(name)


def test_a_near_miss_gets_a_hint() -> None:
    with pytest.raises(TaskError, match=r"did you mean starter\?"):
        load_suite("startre")


@each_task
def test_each_op_is_in_the_kernelbench_form_with_a_header_and_docstrings(task: Task) -> None:
    assert validate(task.source, task.name).function is None
    tree = ast.parse(task.source)
    header = ast.get_docstring(tree)
    assert header is not None
    assert f"Category: {task.category}" in header
    assert "Dtype: float32" in header
    model = top_level(task.source)["Model"]
    assert isinstance(model, ast.ClassDef)
    assert ast.get_docstring(model), "Model does not say what it computes"


@each_task
def test_each_op_runs_is_deterministic_and_knows_float64(task: Task) -> None:
    import torch  # these ops are the project's own; a submitted one is only ever run in a sandbox

    namespace: dict[str, object] = {}
    exec(compile(task.source, task.name, "exec"), namespace)
    torch.manual_seed(1)
    model, inputs = namespace["Model"](*namespace["get_init_inputs"]()), namespace["get_inputs"]()  # type: ignore[operator]
    with torch.no_grad():
        first, second = (flat(model(*inputs)) for _ in range(2))
        wide_inputs = [item.double() if item.is_floating_point() else item for item in inputs]
        wide = flat(model.double()(*wide_inputs))
        assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
        for narrow, exact in zip(first, wide, strict=True):
            assert (narrow.dtype, exact.dtype) == (torch.float32, torch.float64)
            assert (narrow - exact).abs().max() <= 1e-5 * exact.abs().max()
            assert narrow.numel() == 1 or narrow.std() > 0
        for position in range(len(inputs)):
            changed = list(wide_inputs)
            fresh = namespace["get_inputs"]()[position]  # type: ignore[operator]
            changed[position] = fresh.to(wide_inputs[position].dtype)
            outputs = flat(model(*changed))
            assert any(not torch.equal(one, other) for one, other in zip(outputs, wide, strict=True)), (
                f"input {position} does not matter"
            )


def flat(output: object) -> list:  # type: ignore[type-arg]
    """The tensors of an output."""
    return list(output) if isinstance(output, tuple | list) else [output]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_is_the_op_of_its_name_in_the_suite(path: Path) -> None:
    example, (original,) = load_task(path), [task for task in STARTER if task.name == path.stem]
    assert (example.category, example.dtype) == (original.category, original.dtype)
    op = validate(path.read_bytes(), path.name)
    if op.function is None:
        assert example.source == original.source
        return
    ours, theirs = top_level(path.read_text()), top_level(original.source)
    model = theirs.pop("Model")
    assert isinstance(model, ast.ClassDef)
    forward = next(item for item in model.body if isinstance(item, ast.FunctionDef) and item.name == "forward")
    function = ours.pop(op.function)
    assert body_of(function) == body_of(forward)
    assert isinstance(function, ast.FunctionDef)
    assert [a.arg for a in function.args.args] == [a.arg for a in forward.args.args][1:]
    del theirs["get_init_inputs"]
    assert {name: ast.dump(node) for name, node in ours.items()} == {
        name: ast.dump(node) for name, node in theirs.items()
    }


def test_there_are_six_examples_in_both_forms() -> None:
    forms = [validate(path.read_bytes(), path.name).function for path in EXAMPLES]
    assert len(forms) == 6
    assert forms.count(None) >= 2
    assert "op" in forms
    assert len(set(forms)) >= 3


@pytest.mark.parametrize("name", ["rmsnorm_gelu_cpp", "wrong_rmsnorm_gelu"])
def test_an_example_candidate_is_not_taken_for_an_op(name: str) -> None:
    with pytest.raises(TaskError, match="it is a candidate and not an op"):
        load_task(ROOT / "examples" / "candidates" / f"{name}.py")


CANDIDATES = """
import runpy, torch
torch.set_num_threads(2)
op = runpy.run_path("examples/rmsnorm_gelu.py")
torch.manual_seed(0)
model = op["Model"](*op["get_init_inputs"]())
x = op["get_inputs"]()[0]
for name in ("rmsnorm_gelu_cpp", "wrong_rmsnorm_gelu"):
    other = runpy.run_path(f"examples/candidates/{name}.py")["ModelNew"](*op["get_init_inputs"]())
    other.load_state_dict(model.state_dict(), strict=True)
    with torch.no_grad():
        exact = model.double()(x.double())
        eager = (model.float()(x) - exact).abs().max()
        print(((other(x) - exact).abs().max() / eager).item())
print(sum(1 for line in open("/proc/self/maps") if "libgomp" in line and "r-xp" in line))
"""


def test_the_example_candidates_are_as_right_and_as_wrong_as_they_say(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", CANDIDATES]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    right, wrong, openmp_libraries = map(float, done.stdout.split())
    assert right < 2, "the candidate's error is twice the reference's own"
    assert wrong > 100
    assert openmp_libraries == 1, "the candidate brought a second OpenMP runtime"


def test_the_ops_are_found_when_installed(tmp_path: Path) -> None:
    """What an install lays down is read through importlib.resources, here even out of an archive."""
    archive_path = tmp_path / "installed.zip"
    with zipfile.ZipFile(archive_path, "w") as archive:
        for path in sorted((ROOT / "tasks").rglob("*.py")):
            archive.write(path, path.relative_to(ROOT))
    script = "from tasks.suites import load_suite; print(len(load_suite('starter').tasks))"
    command = [sys.executable, "-c", script]
    environment = {"PYTHONPATH": str(archive_path)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(STARTER)
