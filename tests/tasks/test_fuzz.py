"""Whatever a file holds, loading it ends in a Task or in a TaskError of one line."""

import ast
import subprocess
import sys
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.load import find_task, task_from_source
from tasks.task import TaskError

PIECES = [
    "class Model(torch.nn.Module):\n",
    "class Model:\n",
    "    def forward(self, x):\n",
    "    def __init__(self):\n",
    "        return x\n",
    "def get_inputs():\n",
    "def get_init_inputs():\n",
    "def op(x, *y, z=1, **k):\n",
    "async def op(x):\n",
    "    return [x]\n",
    "    return []\n",
    "    yield\n",
    "if x:\n",
    "@op\n",
    "import torch\n",
    "Model = get_inputs = 3\n",
    "(a, *b), c.d = e\n",
    '"""Category: loss\n"""\n',
    "\\\n",
    "\t\f\r",
    "# coding: ascii\n",
    "\ufeff",
    "\u2028",
    "\0",
    "é",
    "'''",
]


def load(source: str | bytes) -> None:
    """Load, and hold whatever comes of it to its promise."""
    try:
        task = task_from_source(source, name="fuzz", where="fuzz.py")
    except TaskError as error:
        assert str(error).startswith("fuzz.py:")
        assert len(str(error).splitlines()) == 1
        return
    names = {node.name for node in ast.parse(task.source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert {"Model", "get_inputs", "get_init_inputs"} <= names
    assert task_from_source(task.source, name="fuzz") == task


@settings(deadline=None)
@given(st.binary(max_size=300))
@example(b"\xff\xfe")
@example(b"\x00")
def test_any_bytes(source: bytes) -> None:
    load(source)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=300))
@example("\ud800")
@example("def op(x):\n return x\ndef get_inputs():\n return [1]\n\f")
def test_any_text(source: str) -> None:
    load(source)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("def op(x):\n    return [x]\ndef get_inputs():\n    return [x]\n")
def test_any_order_of_the_pieces_of_an_op(source: str) -> None:
    load(source)
    load(source.encode())


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_reference(ref: str) -> None:
    try:
        task = find_task(ref)
    except TaskError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert task.source


def test_loading_every_built_in_task_imports_neither_torch_nor_any_op() -> None:
    script = (
        "import sys; from tasks.suites import list_suites, load_suite; "
        "assert all(load_suite(name).tasks for name in list_suites()); "
        "print([name for name in sys.modules if name.partition('.')[0] in ('torch', 'numpy') or 'starter' in name])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
