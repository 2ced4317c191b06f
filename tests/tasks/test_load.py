"""Loading an op: both forms, from a file or text, without ever executing it."""

import ast
import os
from pathlib import Path

import pytest

from tasks.load import find_task, load_task, task_from_source
from tasks.task import TaskError

KERNELBENCH = '''import torch
import torch.nn as nn

class Block(nn.Module):
    def __init__(self, n):
        super(Block, self).__init__()
        self.fc = nn.Linear(n, n)

    def forward(self, x):
        return self.fc(x)

class Model(nn.Module):
    """
    Simple model that performs a block and an activation.
    """
    def __init__(self, n: int):
        super(Model, self).__init__()
        self.block = Block(n)

    def forward(self, x: torch.Tensor, y: torch.Tensor = None) -> torch.Tensor:
        return torch.relu(self.block(x))  \n
batch_size = 16
n = 64 * 2

def get_inputs():
    x = torch.randn(batch_size, n)
    return [x]

def get_init_inputs():
    return [n]  # No trailing newline'''

FUNCTION = """import torch

def op(x, w):
    return torch.relu(x * w)

def get_inputs():
    return [torch.randn(8, 8), torch.randn(8)]
"""


def run(source: str) -> dict[str, object]:
    """Execute an op of these tests' own making, as only a sandbox does with a submitted one."""
    namespace: dict[str, object] = {}
    exec(compile(source, "op", "exec"), namespace)
    return namespace


def outputs_of(source: str) -> object:
    """Make the model and its inputs and call it."""
    op = run(source)
    return op["Model"](*op["get_init_inputs"]())(*op["get_inputs"]())  # type: ignore[operator]


def test_the_kernelbench_form_loads_byte_for_byte() -> None:
    task = task_from_source(KERNELBENCH.encode(), name="block")
    assert task.source == KERNELBENCH
    assert task.id == "local/block"
    assert outputs_of(task.source).shape == (16, 128)  # type: ignore[attr-defined]


@pytest.mark.parametrize("newline", ["\r\n", "\r", "\n"])
def test_line_endings_stay_as_they_are(newline: str, tmp_path: Path) -> None:
    text = KERNELBENCH.replace("\n", newline)
    path = tmp_path / "block.py"
    path.write_bytes(text.encode())
    assert load_task(path).source == text


def test_a_byte_order_mark_is_dropped_because_python_text_has_none() -> None:
    assert task_from_source(b"\xef\xbb\xbf" + KERNELBENCH.encode(), name="block").source == KERNELBENCH


def test_the_hash_pins_the_source() -> None:
    one, other = (task_from_source(KERNELBENCH + tail, name="block") for tail in ("", "\n"))
    assert one.source_hash == task_from_source(KERNELBENCH, name="another").source_hash
    assert one.source_hash != other.source_hash


def test_the_function_form_becomes_the_kernelbench_form() -> None:
    task = task_from_source(FUNCTION, name="scaled")
    assert task.source.startswith(FUNCTION)
    assert "def forward(self, x, w):\n        return op(x, w)" in task.source
    assert outputs_of(task.source).shape == (8, 8)  # type: ignore[attr-defined]


def test_what_was_normalized_loads_again_unchanged() -> None:
    once = task_from_source(FUNCTION, name="scaled")
    assert task_from_source(once.source, name="scaled") == once


def test_a_function_called_op_is_the_op_among_other_public_ones() -> None:
    source = FUNCTION + "\ndef helper(x):\n    return x\n"
    assert "return op(x, w)" in task_from_source(source, name="scaled").source


def test_the_only_public_function_is_the_op_whatever_its_name() -> None:
    source = FUNCTION.replace("def op", "def _scale(x):\n    return x\n\ndef scaled_relu")
    assert "return scaled_relu(x, w)" in task_from_source(source, name="scaled").source


@pytest.mark.parametrize(
    ("definition", "forward"),
    [
        ("def op(x, w, eps=1e-5):", "def forward(self, x, w):"),
        ("def op(x, w=None):", "def forward(self, x, w):"),
        ("def op(x, /, w, *, eps=1e-5):", "def forward(self, x, w):"),
        ("def op(*xs):\n    x, w = xs", "def forward(self, *inputs):"),
        ("def op(self, w):\n    x = self", "def forward(self, *inputs):"),
        ("def op(x, op):\n    w = op", "def forward(self, *inputs):"),
    ],
)
def test_any_signature_that_takes_the_inputs_is_normalized(definition: str, forward: str) -> None:
    task = task_from_source(FUNCTION.replace("def op(x, w):", definition), name="scaled")
    assert forward in task.source
    assert outputs_of(task.source).shape == (8, 8)  # type: ignore[attr-defined]


def test_a_function_form_that_imports_no_torch_by_name_gets_it() -> None:
    source = "from torch import randn\ndef op(x):\n    return x + 1\ndef get_inputs():\n    return [randn(3)]"
    assert outputs_of(task_from_source(source, name="plus").source).shape == (3,)  # type: ignore[attr-defined]


def test_inputs_whose_number_only_running_would_tell_are_left_to_the_sandbox() -> None:
    source = FUNCTION.replace("return [torch.randn(8, 8), torch.randn(8)]", "return list(torch.randn(2, 8, 8))")
    assert outputs_of(task_from_source(source, name="scaled").source).shape == (8, 8)  # type: ignore[attr-defined]


def test_nothing_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    effect = f"open({str(mark)!r}, 'w').close()"
    source = (
        f"import torch\n{effect}\n"
        f"def op(x, y={effect}):\n    return x\n"
        f"@(lambda f: {effect})\ndef get_inputs():\n    {effect}\n    return [torch.ones(3)]\n"
        f"class Helper:\n    {effect}\n"
    )
    path = tmp_path / "effect.py"
    path.write_text(source)
    for task in (load_task(path), find_task(str(path)), task_from_source(source, name="effect")):
        assert effect in task.source
    assert not mark.exists()
    run(source)
    assert mark.exists(), "the op of this test has no side effect, so it proves nothing"


def test_the_name_of_a_file_becomes_a_name_that_is_safe_in_paths_and_pages(tmp_path: Path) -> None:
    path = tmp_path / "-my op; rm <b>é.py"
    path.write_text(FUNCTION)
    assert load_task(path).name == "_my_op__rm__b__"
    assert load_task(path, name="mine").name == "mine"


@pytest.mark.parametrize("name", ["", ".", "../x", "a/b", "-x", "a b", "x" * 101, "a\nb"])
def test_a_name_that_is_not_safe_is_refused(name: str) -> None:
    with pytest.raises(TaskError, match="cannot be given the name"):
        task_from_source(FUNCTION, name=name)
    with pytest.raises(TaskError, match="cannot be given the suite"):
        task_from_source(FUNCTION, name="op", suite=name)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"gone\.py: no such file; check the path$"):
        load_task(tmp_path / "gone.py")


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"is a directory; name one \.py file in it$"):
        load_task(tmp_path)
    with pytest.raises(TaskError, match="is a directory"):
        find_task(str(tmp_path))


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(TaskError, match="not a regular file"):
        load_task(tmp_path / "pipe.py")


def test_a_device_without_end_is_refused() -> None:
    with pytest.raises(TaskError, match="not a regular file"):
        load_task(Path("/dev/zero"))


@pytest.mark.parametrize("name", ["a\0b.py", "x" * 300 + ".py"])
def test_a_path_that_no_file_can_have(name: str) -> None:
    with pytest.raises(TaskError, match="cannot be read"):
        load_task(Path(name))


def test_a_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "loop.py").symlink_to("loop.py")
    with pytest.raises(TaskError, match="cannot be read"):
        load_task(tmp_path / "loop.py")


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.py"
    path.write_text(FUNCTION)
    path.chmod(0)
    if os.geteuid() == 0:  # root reads everything, so here the refusal has to be played

        def refuse(*_: object) -> int:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("tasks.text.os.open", refuse)
    with pytest.raises(TaskError, match=r"cannot be read \(Permission denied\)"):
        load_task(path)


def test_find_task_takes_a_path_or_a_task_of_a_suite(tmp_path: Path) -> None:
    path = tmp_path / "scaled.py"
    path.write_text(FUNCTION)
    assert find_task(str(path)).id == "local/scaled"
    assert find_task("starter/rmsnorm_gelu").id == "starter/rmsnorm_gelu"


@pytest.mark.parametrize(
    ("ref", "hint"),
    [
        ("rmsnorm_gelu", "did you mean starter/rmsnorm_gelu?"),
        ("starter/rmsnormgelu", "did you mean starter/rmsnorm_gelu?"),
        ("Starter/adamw_step", "did you mean starter/adamw_step?"),
        ("starter/", "kernelwright tasks list"),
        ("nowhere/nothing", "kernelwright tasks list"),
        ("starter/../../secret", "kernelwright tasks list"),
        ("", "kernelwright tasks list"),
        ("a\0b", "kernelwright tasks list"),
        ("x" * 5000, "kernelwright tasks list"),
    ],
)
def test_find_task_says_what_it_could_have_been(ref: str, hint: str) -> None:
    with pytest.raises(TaskError, match="no such task or file") as caught:
        find_task(ref)
    assert hint in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_deep_but_valid_op_stays_within_the_parser() -> None:
    source = FUNCTION.replace("x * w", "x" + " * w" * 400)
    assert ast.parse(task_from_source(source, name="deep").source)
