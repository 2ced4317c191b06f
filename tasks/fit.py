"""Variants of a task that are scaled down to fit a limit. The source is read by `ast` only and never executed.

What may be changed are integers at the top level of the file that set sizes of the inputs: `batch_size = 4096`,
`H, W = 512, 512`, each number of `input_shape = (64, 512)`. A constant must be used by `get_inputs()`, directly or
through other constants and functions of the file. What only the model uses, such as the size of a kernel, a stride, or
the number of output channels, stays as it is. Numbers inside functions stay, too.

Constants are halved in this order until the variant fits:

1. `batch`: the first dimension of every input, down to 16 or more;
2. `size`: all others that only inputs use. Those that stay at 64 or more are halved together, so that their ratios
   stay: an image twice as wide as high stays so, and a small dimension beside large ones is kept. Then all are halved
   together as long as each stays at 16 or more, then the largest one by one;
3. `batch` again, down to 2 or more;
4. `shared`: those that get_init_inputs() or the model use as well, in the order of 2. Both sides use the same constant,
   so they still agree.

An odd number stays odd: 4095 becomes 2047. Halving keeps powers of two, and what an even number is divisible by apart
from two. Each variant is tried in a sandbox. Where the op fails with a step, or nothing gets smaller, the walk goes on
from the step before. Constants that failed together are tried apart, equal ones together. Those that still fail are
left alone. Where nothing else is left, equal ones of inputs are tried together whatever their role.

The same source and limit give the same variant. The variant says what was changed, as the literal FITTED at the end of
its source.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

from tasks import syntax
from tasks.build import task_from_source
from tasks.edit import replaced, unix_lines
from tasks.parse import literals
from tasks.shape_cases import cases_of, dtype_of, with_other_cases
from tasks.task import Task
from tasks.text import task_error

RULE = 1
"""The number of the rule. A variant made by another rule is made anew."""

NAME = "FITTED"
LEAST = 16
LEAST_LARGE = 64
LEAST_BATCH = 2
MAX_STEPS = 60
"""Halvings of one task, which take it below any limit."""

_MAX_VALUE = 1 << 48
_MAX_CONSTANTS = 200
_MAX_SIZES = 64  # of one tensor, with the tuples and names that stand for them
_MAX_DEPTH = 16  # of an expression that is a number
_LIMIT = re.compile(r"([1-9][0-9]{0,6})(MB|MiB|GB|GiB)")
_UNITS = {"MB": 10**6, "MiB": 1 << 20, "GB": 10**9, "GiB": 1 << 30}
_FACTORIES = frozenset({"rand", "randn", "randint", "zeros", "ones", "empty", "full", "normal"})
_REMEDY = f"{NAME} is written by `kernelwright tasks import --fit`; leave it out"


@dataclass(frozen=True)
class Limit:
    """How many bytes the inputs and outputs of a call may have; `text` is how it was given, and names the suite."""

    text: str
    limit_bytes: int


def read_limit(text: str) -> Limit:
    """Read a limit such as `256MB`.

    Raises:
        TaskError: it is not a whole number of MB, MiB, GB or GiB.
    """
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise task_error(
            f"--fit {text[:40]}", "is not a size", "give a whole number of MB, MiB, GB or GiB: --fit 256MB"
        )
    return Limit(text, int(match[1]) * _UNITS[match[2]])


def fitted_suite(suite: str, limit: Limit) -> str:
    """The suite of the variants of a suite's tasks. It is another one, so that no board holds both."""
    return f"{suite}-fit{limit.text}"


@dataclass(frozen=True)
class Constant:
    """An integer at the top level of a task's file that sets sizes of its inputs.

    Attributes:
        name: how it is called: `batch_size`, `H, W` of a chained assignment, `input_shape[1]`.
        value: its value in the source.
        role: `batch`, `size` or `shared`.
        place: the number of its expression among those of the file.
    """

    name: str
    value: int
    role: str
    place: int


@dataclass(frozen=True)
class Fitted:
    """What a variant is made from, and what was changed.

    Attributes:
        of: the task that it is a variant of, as suite/name.
        source_hash: the SHA-256 of that task's source.
        limit_bytes: the limit of inputs and outputs.
        changed: by constant, the value before and after.
        left_out: the numbers, from 0, of the task's cases that do not fit.
        rule: the number of the rule.
    """

    of: str
    source_hash: str
    limit_bytes: int
    changed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    left_out: tuple[int, ...] = ()
    rule: int = RULE

    def describe(self) -> str:
        """What was changed, in one line."""
        parts = [f"{name} {before} -> {after}" for name, (before, after) in self.changed.items()]
        if self.left_out:
            parts.append(f"without {len(self.left_out)} of its cases")
        return "; ".join(parts) or "nothing changed"


def constants_of(source: str) -> tuple[Constant, ...]:
    """The constants that may be changed, in the order of the file."""
    return _File(unix_lines(source)).constants


def with_values(source: str, values: Mapping[Constant, int]) -> str:
    """The source with these values of its constants."""
    text = unix_lines(source)
    found = _File(text)
    return replaced(text, [(found.places[each.place], str(value)) for each, value in values.items()])


Way = Literal["together", "apart", "alike"]
"""How the constants of a role are halved: all together; the largest first; or equal ones whatever their role."""

Step = tuple[tuple[Constant, ...], dict[Constant, int]]
"""The constants that are halved next, and the values of all constants then."""


_PHASES: tuple[tuple[tuple[str, ...], int, bool], ...] = (
    (("batch",), LEAST, False),
    (("size",), LEAST_LARGE, True),
    (("size",), LEAST, True),
    (("size",), LEAST, False),
    (("batch",), LEAST_BATCH, False),
    (("shared",), LEAST_LARGE, True),
    (("shared",), LEAST, True),
    (("shared",), LEAST, False),
)
_ALIKE = ((("batch", "size"), LEAST, False),)


def halvings(
    constants: Sequence[Constant], values: Mapping[Constant, int], left_alone: frozenset[Constant], way: Way
) -> Iterator[Step]:
    """The steps of the rule from these values on."""
    now = dict(values)
    for roles, least, together in _ALIKE if way == "alike" else _PHASES:
        able = [each for each in constants if each.role in roles and each not in left_alone]
        able = [each for each in able if half(now[each]) >= least]
        while able:
            largest = max(now[each] for each in able)
            halved = tuple(each for each in able if (together and way == "together") or now[each] == largest)
            for each in halved:
                now[each] = half(now[each])
            yield halved, dict(now)
            left = [each for each in able if half(now[each]) >= least]
            able = left if not together or len(left) == len(able) or way != "together" else []


def half(value: int) -> int:
    """Half of an even number; of an odd one, the odd number at or below its half."""
    return value // 2 if value % 2 == 0 else value // 2 - 1 + (value // 2) % 2


def variant(task: Task, limit: Limit, values: Mapping[Constant, int]) -> Task:
    """The task with these values of its constants, in the suite of the limit.

    Raises:
        TaskError: its source would be too long, or its suite's name.
    """
    changed = {each.name: (each.value, value) for each, value in values.items() if value != each.value}
    edits = {each: value for each, value in values.items() if value != each.value}
    fitted = Fitted(task.id, task.source_hash, limit.limit_bytes, changed)
    return _variant(task, limit, with_values(task.source, edits) if edits else task.source, fitted, task.dtype)


def variant_of_cases(task: Task, limit: Limit, kept: Sequence[int]) -> Task:
    """The task with some of its cases (`tasks.shape_cases`), in the suite of the limit.

    Raises:
        TaskError: as `variant`.
    """
    cases = cases_of(task.source)
    left_out = tuple(number for number in range(len(cases)) if number not in set(kept))
    few = tuple(cases[number] for number in kept)
    source = with_other_cases(task.source, few) if left_out else task.source
    fitted = Fitted(task.id, task.source_hash, limit.limit_bytes, {}, left_out)
    return _variant(task, limit, source, fitted, dtype_of(few))


def fitted_of(source: str) -> Fitted | None:
    """What a source says that it is a variant of; None if it says nothing.

    Raises:
        TaskError: FITTED is not what `variant` writes.
    """
    if NAME not in source:
        return None
    found = literals(syntax.parse(source), NAME, {NAME: _REMEDY})
    if NAME not in found:
        return None
    given, line = found[NAME]
    try:
        assert isinstance(given, dict)
        changed = {str(name): (int(before), int(after)) for name, (before, after) in given["changed"].items()}
        numbers = tuple(int(number) for number in given["left_out"])
        return Fitted(
            str(given["of"]), str(given["source_hash"]), int(given["limit_bytes"]), changed, numbers, int(given["rule"])
        )
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError):
        raise task_error(NAME, "is not what it must be", _REMEDY, line=line) from None


def _variant(task: Task, limit: Limit, source: str, fitted: Fitted, dtype: str) -> Task:
    value = {
        "of": fitted.of,
        "source_hash": fitted.source_hash,
        "limit_bytes": fitted.limit_bytes,
        "changed": {name: list(pair) for name, pair in fitted.changed.items()},
        "left_out": list(fitted.left_out),
        "rule": fitted.rule,
    }
    listed = "".join(f"    {key!r}: {each!r},\n" for key, each in value.items())
    text = f"{source.rstrip()}\n\n\n{NAME} = {{\n{listed}}}\n"
    found = task_from_source(text, name=task.name, suite=fitted_suite(task.suite, limit), where=task.id)
    return replace(found, category=task.category, dtype=dtype)


class _File:
    """The constants of a file, and what its functions use."""

    def __init__(self, source: str) -> None:
        self.tree = syntax.parse(source)
        self.places: list[ast.expr] = []
        self.uses: dict[str, set[str]] = {}  # by a name of the file: the names that it is made from or uses
        self.values: dict[str, ast.expr] = {}  # of names that are assigned once
        found: list[tuple[str, int, int, frozenset[str]]] = []
        for statement in self.tree.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.uses[statement.name] = _names(statement)
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                found += self._assigned(statement)
        inputs = self._reached("get_inputs")
        others = self._reached("get_init_inputs") | self._reached("Model")
        batch = self._batch()
        self.constants = tuple(
            Constant(name, value, self._role(names, others, batch), place)
            for name, value, place, names in islice(found, _MAX_CONSTANTS)
            if names & inputs
        )

    def _assigned(self, statement: ast.Assign | ast.AnnAssign) -> Iterator[tuple[str, int, int, frozenset[str]]]:
        """The integers of an assignment: the name, value, place, and the names that stand for it."""
        value = statement.value
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if value is None:
            return
        for target in targets:
            for name in _bound(target):
                self.uses[name] = self.uses.get(name, set()) | _names(value)
        plain = [target.id for target in targets if isinstance(target, ast.Name)]
        if len(plain) == len(targets):
            self.values.update(dict.fromkeys(plain, value))
            yield from self._numbers(", ".join(plain), value, frozenset(plain))
        elif len(targets) == 1 and isinstance(targets[0], ast.Tuple | ast.List) and isinstance(value, ast.Tuple):
            for target, each in zip(targets[0].elts, value.elts, strict=False):
                if isinstance(target, ast.Name):
                    self.values[target.id] = each
                    self.uses[target.id] = _names(each)
                    yield from self._numbers(target.id, each, frozenset({target.id}))

    def _numbers(
        self, name: str, value: ast.expr, names: frozenset[str]
    ) -> Iterator[tuple[str, int, int, frozenset[str]]]:
        parts = [(name, value)]
        if isinstance(value, ast.Tuple | ast.List):
            parts = [(f"{name}[{number}]", each) for number, each in enumerate(value.elts)]
        for label, each in parts:
            number = _number(each)
            if number is not None and number > 1:
                self.places.append(each)
                yield label, number, len(self.places) - 1, names

    def _reached(self, start: str) -> set[str]:
        """All names that a function or class of the file uses, and those that these are made from."""
        found, waiting = {start}, [start]
        while waiting:
            for name in self.uses.get(waiting.pop(), ()):
                if name not in found:
                    found.add(name)
                    waiting.append(name)
        return found

    def _batch(self) -> set[str]:
        """The names that are the first dimension of every input with two or more dimensions, and no other one."""
        function = next(
            (node for node in self.tree.body if isinstance(node, ast.FunctionDef) and node.name == "get_inputs"), None
        )
        first: set[str] | None = None
        later: set[str] = set()
        for node in ast.walk(function) if function is not None else ():
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in _FACTORIES:
                continue
            sizes = self._sizes(node)
            if not sizes:
                continue
            name = sizes[0].id if isinstance(sizes[0], ast.Name) else ""
            if len(sizes) > 1 or name:
                first = {name} if first is None else first & {name}
            later.update(each.id for each in sizes[1:] if isinstance(each, ast.Name))
        return set() if first is None else first - later

    def _sizes(self, call: ast.Call) -> list[ast.expr]:
        """The sizes that a tensor is made with, as far as they can be told apart."""
        arguments = list(call.args) + [each.value for each in call.keywords if each.arg == "size"]
        assert isinstance(call.func, ast.Attribute)
        if call.func.attr in ("randint", "full", "normal"):
            arguments = [each for each in arguments if isinstance(each, ast.Tuple | ast.List)]
        found: list[ast.expr] = []
        waiting = arguments[:_MAX_SIZES][::-1]
        for _ in range(_MAX_SIZES):  # a tuple of names may stand for tuples of names, and so on
            if not waiting:
                break
            each = waiting.pop()
            known = self.values.get(each.id) if isinstance(each, ast.Name) else None
            if isinstance(each, ast.Starred):
                waiting.append(each.value)
            elif isinstance(each, ast.Tuple | ast.List):
                waiting += each.elts[:_MAX_SIZES][::-1]
            elif isinstance(known, ast.Tuple | ast.List | ast.Name):
                waiting.append(known)
            else:
                found.append(each)
        return found

    def _role(self, names: frozenset[str], others: set[str], batch: set[str]) -> str:
        if names & others:
            return "shared"
        return "batch" if names & batch else "size"


def _names(node: ast.AST) -> set[str]:
    """The names that are used in a node and come from outside of the functions in it."""
    found: set[str] = set()
    waiting: list[tuple[ast.AST, frozenset[str]]] = [(node, frozenset())]
    while waiting:
        each, own = waiting.pop()
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each.id not in own:
            found.add(each.id)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            outside = [*each.args.defaults, *(given for given in each.args.kw_defaults if given is not None)]
            waiting.extend((given, own) for given in outside)
            taken = {argument.arg for argument in ast.walk(each.args) if isinstance(argument, ast.arg)}
            body = [each.body] if isinstance(each, ast.Lambda) else each.body
            inside = own | taken | {name for part in body for name in _bound(part)}
            waiting.extend((part, inside) for part in body)
        else:
            waiting.extend((part, own) for part in ast.iter_child_nodes(each))
    return found


def _bound(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _number(value: ast.expr, depth: int = 0) -> int | None:
    """The value of an integer that is written as numbers, their products, sums, differences, quotients and powers."""
    if isinstance(value, ast.Constant):
        return value.value if type(value.value) is int and abs(value.value) < _MAX_VALUE else None
    if not isinstance(value, ast.BinOp) or depth == _MAX_DEPTH:
        return None
    left, right = _number(value.left, depth + 1), _number(value.right, depth + 1)
    if left is None or right is None:
        return None
    result: int | None = None
    match value.op:
        case ast.Add():
            result = left + right
        case ast.Sub():
            result = left - right
        case ast.Mult():
            result = left * right
        case ast.FloorDiv() if right != 0:
            result = left // right
        case ast.Pow() if 0 <= right <= 48 and abs(left) <= 64:
            result = left**right
    return result if result is not None and abs(result) < _MAX_VALUE else None
