"""What is refused about an op, each with one clear line: where, what, and what to do."""

import ast
import time
from pathlib import Path

import pytest

from tasks.parse import MAX_BRACES, MAX_NODES
from tasks.task import TaskError
from tasks.text import MAX_SOURCE_BYTES
from tasks.validate import validate

ROOT = Path(__file__).parents[2]
MODEL = """import torch

class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()

    def forward(self, x, w):
        return x * w

def get_inputs():
    return [torch.randn(4), torch.randn(4)]

def get_init_inputs():
    return [4]
"""
FUNCTION = """import torch

def op(x):
    return x + 1

def get_inputs():
    return [torch.randn(4)]
"""


def complaint_of(source: str | bytes) -> str:
    """The one line with which a source is refused."""
    with pytest.raises(TaskError) as caught:
        validate(source, "op.py")
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert text.isprintable()
    assert text.startswith("op.py:")
    assert "; " in text, "it does not say what to do"
    return text


def edited(source: str, old: str, new: str) -> str:
    """The source with one place changed."""
    assert source.count(old) == 1
    return source.replace(old, new)


@pytest.mark.parametrize("source", [MODEL, FUNCTION])
def test_a_valid_op_is_accepted(source: str) -> None:
    assert validate(source, "op.py").function == (None if source is MODEL else "op")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("class Model(", "class Modle(", "op.py:3: has no class Model(torch.nn.Module); did you mean `Modle`?"),
        ("class Model(", "class model(", "op.py:3: has no class Model(torch.nn.Module); did you mean `model`?"),
        ("class Model(", "class Net(", "op.py:1: has no class Model(torch.nn.Module); add it"),
        ("class Model(torch.nn.Module)", "class Model", "op.py:3: Model is not a torch.nn.Module; write"),
        ("def forward", "def foward", "op.py:7: Model has no method forward; did you mean `foward`?"),
        ("def forward", "def run", "op.py:3: Model has no method forward; write"),
        ("def forward", "async def forward", "op.py:7: Model.forward is async"),
        ("return x * w", "yield x * w", "op.py:8: Model.forward is a generator"),
        ("forward(self, x, w)", "forward()", "op.py:7: Model.forward takes no self"),
        ("forward(self, x, w)", "forward(self)", "op.py:7: Model.forward takes no inputs"),
        (
            "forward(self, x, w)",
            "forward(self, x)",
            "op.py:7: Model.forward takes 1 input (x), but get_inputs() returns 2; make",
        ),
        ("forward(self, x, w)", "forward(self, x, w, b)", "op.py:7: Model.forward takes 3 inputs (x, w, b), but"),
        ("forward(self, x, w)", "forward(self, x, *, w)", "op.py:7: Model.forward needs the keyword `w`"),
        ("def get_inputs", "def get_input", "op.py:10: has no get_inputs(); did you mean `get_input`?"),
        ("def get_inputs", "def getInputs", "op.py:10: has no get_inputs(); did you mean `getInputs`?"),
        ("def get_inputs", "def make", "op.py:1: has no get_inputs(); add it"),
        ("def get_inputs()", "def get_inputs(n)", "op.py:10: get_inputs takes arguments (n)"),
        ("def get_inputs()", "async def get_inputs()", "op.py:10: get_inputs is async"),
        ("return [torch.randn(4), torch.randn(4)]", "return []", "op.py:11: get_inputs returns no inputs"),
        ("return [torch.randn(4), torch.randn(4)]", "return ()", "op.py:11: get_inputs returns no inputs"),
        ("return [torch.randn(4), torch.randn(4)]", "return", "op.py:11: get_inputs returns nothing"),
        ("return [torch.randn(4), torch.randn(4)]", "return None", "op.py:11: get_inputs returns nothing"),
        ("return [torch.randn(4), torch.randn(4)]", "pass", "op.py:10: get_inputs returns nothing"),
        ("return [torch.randn(4), torch.randn(4)]", "yield 1", "op.py:11: get_inputs is a generator"),
        (
            "return [torch.randn(4), torch.randn(4)]",
            "return torch.randn(2, 4)",
            "op.py:11: get_inputs returns one value where a list is needed",
        ),
        ("def get_init_inputs", "def get_init_input", "has no get_init_inputs(); where Model takes no arguments"),
        ("return [4]", "return []", "op.py:4: Model.__init__ takes 1 input (n), but get_init_inputs() returns 0"),
        ("return [4]", "return [4, 5]", "op.py:4: Model.__init__ takes 1 input (n), but get_init_inputs() returns 2"),
        ("return [4]", "return 4", "op.py:14: get_init_inputs returns one value where a list is needed"),
        (
            "def get_init_inputs():\n    return [4]",
            "get_init_inputs = 4",
            "op.py:13: get_init_inputs is not a function",
        ),
        ("class Model(", "class ModelNew(", "op.py:3: defines ModelNew, so it is a candidate and not an op"),
        ("import torch\n", "class ModelNew: pass\n", "op.py:1: defines ModelNew, so it is a candidate and not an op"),
    ],
)
def test_what_is_wrong_with_a_module(old: str, new: str, complaint: str) -> None:
    assert complaint in complaint_of(edited(MODEL, old, new))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("def get_inputs", "def get_input", "op.py:6: has no get_inputs(); did you mean `get_input`?"),
        ("return [torch.randn(4)]", "return []", "op.py:7: get_inputs returns no inputs"),
        ("def op(x)", "def op()", "op.py:3: op takes no inputs"),
        ("def op(x)", "def op(x, y)", "op.py:3: op takes 2 inputs (x, y), but get_inputs() returns 1"),
        ("def op(x)", "def op(x, y, z=1)", "op.py:3: op takes 2 to 3 inputs (x, y, z), but get_inputs() returns 1"),
        ("def op(x)", "def op(x, y, *z)", "op.py:3: op takes at least 2 inputs (x, y), but get_inputs() returns 1"),
        ("def op(x)", "def op(*, x)", "op.py:3: op needs the keyword `x`"),
        ("def op(x)", "async def op(x)", "op.py:3: op is async"),
        ("def op(x)", "def _op(x)", "no public function that could be the op"),
        ("def op(x)", "def a(x):\n    return x\ndef b(x)", "op.py:5: has 2 public functions (a, b), so it is unclear"),
        ("def op(x)", "def op(x):\n    return x\ndef op(x)", "op.py:5: op is defined twice (first on line 3)"),
        ("def op(x)", "def get_init_inputs():\n    return []\ndef op(x)", "has no class Model(torch.nn.Module)"),
    ],
)
def test_what_is_wrong_with_a_function(old: str, new: str, complaint: str) -> None:
    assert complaint in complaint_of(edited(FUNCTION, old, new))


@pytest.mark.parametrize(
    ("again", "name"),
    [
        ("class Model(torch.nn.Module): pass", "Model"),
        ("def Model(): pass", "Model"),
        ("def get_inputs(): return [1]", "get_inputs"),
        ("def get_init_inputs(): return []", "get_init_inputs"),
    ],
)
def test_a_duplicate_definition_is_refused_with_both_lines(again: str, name: str) -> None:
    assert f"op.py:15: {name} is defined twice (first on line " in complaint_of(MODEL + again)


@pytest.mark.parametrize("name", ["forward(self, x, w)", "__init__(self, n)"])
def test_a_duplicate_method_is_refused(name: str) -> None:
    source = edited(MODEL, f"    def {name}:", f"    def {name}:\n        pass\n    def {name}:")
    assert "is defined twice (first on line" in complaint_of(source)


@pytest.mark.parametrize("statement", ["if True:", "try:", "with a:", "for i in a:", "while True:"])
def test_a_definition_that_only_running_would_reach_is_refused(statement: str) -> None:
    indented = "\n".join("    " + line for line in MODEL.splitlines()[2:])
    source = f"import torch\n{statement}\n{indented}\n" + ("finally: pass\n" if statement == "try:" else "")
    assert "is defined inside a " in complaint_of(source)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("", "op.py: is empty"),
        (" \n\t\n", "op.py: is empty"),
        ("def op(x:\n", "op.py:1: is not Python"),
        (MODEL + "\n  x = 1\n", "op.py:16: is not Python (unindent does not match"),
        (MODEL + "print 'hello'", "op.py:15: is not Python"),
        ("#include <torch/extension.h>\nint main() {}", "op.py:2: is not Python"),
        ("x = 1\n\0", "op.py:2: holds a null byte"),
        (b"x = 1\ny = '\xff'\n", "op.py:2: is not UTF-8 (byte 0xff)"),
        (MODEL.encode("utf-16"), "op.py:1: is not UTF-8 (byte 0xff)"),
        (MODEL.encode("utf-16-le"), "op.py:1: holds a null byte"),
        ("x = '\ud800'", "op.py:1: holds a lone surrogate"),
        (b"# -*- coding: latin-1 -*-\n" + MODEL.encode(), "op.py:1: declares another encoding (iso-8859-1)"),
        (b"\n# coding: utf-7\n" + MODEL.encode(), "declares another encoding (utf-7)"),
        (b"# coding: no-such\n" + MODEL.encode(), "declares another encoding"),
        ("# just a comment", "op.py:1: has no get_inputs()"),
        ("x = " + "9" * 5000, "op.py:1: is not Python"),
    ],
)
def test_what_is_not_an_op_at_all(source: str | bytes, complaint: str) -> None:
    assert complaint in complaint_of(source)


def test_the_size_is_bounded_in_bytes_exactly() -> None:
    fill = "#" * (MAX_SOURCE_BYTES - len(MODEL))
    assert validate(MODEL + fill, "op.py").function is None
    assert "op.py: is over 256 KiB" in complaint_of(MODEL + fill + "#")
    assert "op.py: is over 256 KiB" in complaint_of(MODEL + "é" * (len(fill) // 2 + 1))


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 150_000,
        "(" * 150 + ")" * 150,
        "[" * 20_000 + "]" * 20_000,
        "-" * 100_000 + "1",
        "not " * 50_000 + "1",
        "1+" * 100_000 + "1",
        "a" + ".b" * 100_000,
        "lambda: " * 20_000 + "1",
        "1 if 1 else " * 20_000 + "1",
        "f" + "(1)" * 50_000,
        "{1:" * 5_000,
    ],
)
def test_absurd_nesting_is_refused_and_not_suffered(expression: str) -> None:
    started = time.perf_counter()
    try:
        validate(FUNCTION + "x = " + expression, "op.py")
    except TaskError as error:
        assert "nested too deeply" in str(error) or "is not Python" in str(error)
    assert time.perf_counter() - started < 10


def test_python_says_at_once_that_deep_nesting_is_too_deep() -> None:
    assert "op.py: is nested too deeply to be parsed; split" in complaint_of("x = " + "1+" * 100_000 + "1")
    assert "op.py: is nested too deeply to be parsed; split" in complaint_of("x = " + "-" * 100_000 + "1")


def test_deep_nesting_that_still_parses_is_walked_without_recursion() -> None:
    nested = "x" + " + 1" * 800
    assert validate(FUNCTION.replace("x + 1", nested), "op.py").function == "op"
    assert ast.parse(nested)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("x = 1\n" * 40_000, "op.py: has over 50000 names, values, operations and statements; cut it down"),
        (
            "y = [" + "1," * 60_000 + "]\n",
            "op.py: has over 50000 names, values, operations and statements; cut it down",
        ),
        ("y = f'" + "{1}" * 60_000 + "'\n", "op.py: has over 10000 opening braces; cut it down"),
    ],
)
def test_a_file_of_too_many_parts_is_refused_in_good_time(more: str, what: str) -> None:
    source = FUNCTION + more
    assert len(source) < MAX_SOURCE_BYTES
    started = time.process_time()
    assert what in complaint_of(source)
    assert time.process_time() - started < 6  # a busy machine takes three times as long


def test_every_op_at_hand_stays_far_below_the_bounds_on_its_parts() -> None:
    folders = (
        "tasks/suites",
        "examples",
        "tests/attacks",
        "tests/honest",
        "evaluator/platforms",
        "benchmarks/screening",
    )
    names = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    sources = [path.read_text() for path in names]
    assert len(sources) > 100
    for source in sources:
        assert source.count("{") < MAX_BRACES / 5
        assert sum(1 for _ in ast.walk(ast.parse(source))) < MAX_NODES / 5


def test_thousands_of_names_are_searched_for_a_near_miss_in_good_time() -> None:
    started = time.perf_counter()
    many = "".join(f"def get_inputz{i}(): pass\n" for i in range(8000))
    assert "has no get_inputs()" in complaint_of(many)
    assert time.perf_counter() - started < 10


def test_control_characters_of_a_hostile_file_never_reach_the_terminal() -> None:
    source = FUNCTION + '\n"""\nCategory: \x1b]0;owned\x07\n"""\n'
    header = '"""\nCategory: \x1b]0;owned\x07\u202e\n"""\n' + FUNCTION
    assert validate(source, "op.py").category == "other"
    assert "\\x1b" in complaint_of(header)
    with pytest.raises(TaskError) as caught:
        validate("", "evil\n\x1b[2J.py")
    assert str(caught.value).startswith("evil\\n\\x1b[2J.py: is empty")


@pytest.mark.parametrize(
    "change",
    [
        ("forward(self, x, w)", "forward(self, x, w=None, b=None)"),
        ("forward(self, x, w)", "forward(self, *inputs)"),
        ("forward(self, x, w)", "forward(self, x, *rest, flag=True)"),
        ("return [4]", "return [[4], {'n': 4}]"),
        ("return [4]", "return [*(4,)]"),
        ("return [torch.randn(4), torch.randn(4)]", "inputs = 2 * [torch.randn(4)]\n    return inputs"),
        ("return [torch.randn(4), torch.randn(4)]", "return [torch.randn(4) for _ in range(2)]"),
        ("return [torch.randn(4), torch.randn(4)]", "def inner():\n        yield 1\n    return [inner, 2]"),
        ("return [torch.randn(4), torch.randn(4)]", "raise NotImplementedError"),
        ("import torch\n", "import torch\nif torch.cuda.is_available():\n    device = 'cuda'\n"),
        ("import torch\n", "import torch\nPATTERN = '\\d'\n"),
        ("import torch\n", "import torch\ndef helper(x): pass\ndef helper(x): pass\n"),
    ],
)
def test_what_may_well_be_right_is_left_to_the_sandbox(change: tuple[str, str]) -> None:
    assert validate(edited(MODEL, *change), "op.py").function is None


def test_a_model_may_inherit_its_forward() -> None:
    source = MODEL.replace("class Model(torch.nn.Module)", "class Base(torch.nn.Module)")
    assert validate(source + "\nclass Model(Base):\n    pass\n", "op.py").function is None
