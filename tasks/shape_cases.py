"""Tasks whose inputs are made from cases in a JSON file beside them, as those of MultiKernelBench's npukernelbench are.

Such a file defines `get_input_groups()`, which opens the JSON file, and no `get_inputs()`. Its JSON has one object a
line, a case: `{"inputs": [{"name": "x", "shape": [2, 3], "dtype": "float32"}, ...]}`. The cases become part of the
source, so that the task needs no second file. `get_input_groups()` then makes the inputs of a case when it is asked
for, from that case alone, and `get_inputs()` gives those of the first case, which is the one that MultiKernelBench
times.

The file is foreign. It is read on the host as data, within bounds, and its cases are written into the source as
literals.
"""

import ast
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks import syntax
from tasks.edit import replaced, unix_lines
from tasks.metadata import DTYPES
from tasks.parse import parse
from tasks.text import decode_source, read_source, task_error

MAX_CASES = 1000
MAX_INPUTS = 64
MAX_DIMENSIONS = 16
_MAX_SIZE = 1 << 40
_GROUPS = "get_input_groups"
_DEFINED = re.compile(rf"^def[ \t]+{_GROUPS}[ \t]*\([ \t]*\)", re.MULTILINE)
_LONG_NAMES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}

_FUNCTIONS = '''

import io


class _InputGroups:
    """The inputs of each case, made when they are asked for."""

    def __len__(self):
        return len(_CASES)

    def __getitem__(self, number):
        return _inputs_of(_CASES[number])[0]


def get_input_groups():
    return _InputGroups()


def get_inputs():
    return get_input_groups()[0]

'''
_HEAD = "\n_CASES = [\n"
_END = "]\n"


def reads_cases(source: bytes) -> bool:
    """Whether a file, of which nothing is known yet, may make its inputs from cases in a JSON file beside it."""
    return _GROUPS.encode() in source and b"open(" in source and b"def get_inputs(" not in source


def with_cases(source: bytes, path: Path, where: str) -> str:
    """The source of a task with the cases of the JSON file that it names; `path` is the task's file.

    Raises:
        TaskError: the source or the JSON file is not of this form, or is beyond the bounds.
    """
    text = unix_lines(decode_source(source, where))
    tree = parse(text, where)
    groups = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == _GROUPS), None)
    if groups is None or len(_DEFINED.findall(text)) != 1:
        remedy = f"define `def {_GROUPS}():` once, at the top level, and get_inputs()"
        raise task_error(where, f"has no get_inputs(), and no {_GROUPS}() that tells its inputs", remedy)
    opened = _calls_of_open(groups)
    names = {
        node.value
        for node in ast.walk(groups)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(".json")
    }
    if len(opened) != 1 or len(names) != 1:
        what = f"has no get_inputs(), and its {_GROUPS}() does not read one JSON file"
        raise task_error(where, what, "define get_inputs()", line=groups.lineno)
    (name,) = names
    name = path.stem + name if name == ".json" else name
    if name != Path(name).name or not name.isprintable():
        raise task_error(where, "reads its cases from another folder", "put the file beside it", line=groups.lineno)
    beside = path.parent / name
    if beside.is_symlink():
        raise task_error(where, f"its cases, {name}, are a link, which is not followed", "copy the file there")
    cases = read_cases(read_source(beside, what="JSON file"), name)
    edited = _DEFINED.sub("def _inputs_of(_case)", replaced(text, [(opened[0], "io.StringIO(_case)")]))
    return edited.rstrip("\n") + "\n" + _cases_text(cases)


def read_cases(data: bytes, where: str) -> tuple[str, ...]:
    """The cases in JSON lines, each as a line of JSON.

    Raises:
        TaskError: what is there is not cases, or is beyond the bounds.
    """
    remedy = 'write a JSON object {"inputs": [{"name": ..., "shape": [...]}, ...]} on each line'
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise task_error(where, "is not UTF-8", remedy) from None
    lines: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        if len(lines) == MAX_CASES:
            raise task_error(where, f"has over {MAX_CASES} cases", "leave some out", line=number)
        try:
            case = json.loads(line, parse_constant=_float)
            _check_case(case)
            lines.append(json.dumps(case, allow_nan=True))
        except (ValueError, RecursionError) as error:
            problem = str(error) if isinstance(error, _NotACase) else "is not JSON"
            raise task_error(where, problem, remedy, line=number) from None
    if not lines:
        raise task_error(where, "holds no case", remedy)
    return tuple(lines)


def cases_of(source: str) -> tuple[str, ...]:
    """The cases that `with_cases` has written into a task's source; none for any other task."""
    _, found, listed = source.rpartition(_FUNCTIONS + _HEAD)
    if not found:
        return ()
    try:
        cases = ast.literal_eval(syntax.parse(f"({listed.partition(_END)[0]})").body[0].value)  # type: ignore[attr-defined]
        for case in cases:
            _check_case(json.loads(case))
    except (SyntaxError, ValueError, TypeError, AttributeError, IndexError, RecursionError, MemoryError):
        return ()  # a foreign file, which only looks like this
    return tuple(map(str, cases))


def with_other_cases(source: str, cases: Sequence[str]) -> str:
    """A source of `with_cases` with other cases in the place of its own."""
    head, _, tail = source.rpartition(_HEAD)
    return head + _cases_text(cases).removeprefix(_FUNCTIONS) + tail.partition(_END)[2]


def dtype_of(cases: Sequence[str]) -> str:
    """The dtype of a task with these cases: that of the first floating-point tensor of the first case."""
    for each in json.loads(cases[0])["inputs"]:
        name = str(each.get("dtype"))
        name = _LONG_NAMES.get(name, name)
        if name in DTYPES and ("shape" in each or "shapes" in each):
            return name
    return "float32"


def _cases_text(cases: Sequence[str]) -> str:
    return f"{_FUNCTIONS}{_HEAD}" + "".join(f"    {line!r},\n" for line in cases) + _END


class _NotACase(ValueError):
    """What a line of JSON holds is no case. The text says what is wrong."""


def _float(name: str) -> float:
    return float(name)  # NaN, Infinity and -Infinity, which JSON lines of Python programs hold


def _check_case(case: Any) -> None:
    inputs = case.get("inputs") if isinstance(case, dict) else None
    if not isinstance(inputs, list) or not 1 <= len(inputs) <= MAX_INPUTS:
        raise _NotACase(f"is not a case with 1 to {MAX_INPUTS} inputs")
    for each in inputs:
        if not isinstance(each, dict):
            raise _NotACase("has an input that is not an object")
        shapes = [each["shape"]] if "shape" in each else each.get("shapes", [])
        if not isinstance(shapes, list) or len(shapes) > MAX_INPUTS:
            raise _NotACase("has shapes that are not a list")
        for shape in shapes:
            _check_shape(shape)


def _check_shape(shape: Any) -> None:
    if shape is None:  # of an input that is left out
        return
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise _NotACase("has a shape that is not a list of sizes")
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= _MAX_SIZE:
            raise _NotACase(f"has a size that is not a number from 0 to {_MAX_SIZE}")


def _calls_of_open(function: ast.FunctionDef) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]
