"""The parameters that a definition takes and the number of results that it returns, as far as `ast` can tell."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.parse import Function, own_nodes
from tasks.text import task_error

_TENSOR_FACTORIES = frozenset({"arange", "empty", "full", "ones", "rand", "randint", "randn", "tensor", "zeros"})


@dataclass(frozen=True)
class Parameters:
    """The positional parameters of a function (without `self`): their names and how many must and may be given."""

    names: tuple[str, ...]
    required: int
    variadic: bool

    def accept(self, count: int) -> bool:
        """Whether a call with `count` positional arguments would bind."""
        return self.required <= count and (self.variadic or count <= len(self.names))

    def describe(self) -> str:
        """Return the parameters as a person would list them: `2 inputs (x, w)`."""
        names = ", ".join(self.names[:8]) + (", ..." if len(self.names) > 8 else "")
        least = "at least " if self.variadic else f"{self.required} to " if self.required < len(self.names) else ""
        count = self.required if self.variadic else len(self.names)
        return f"{least}{_inputs(count)}" + (f" ({names})" if names else "")


def check_plain(function: Function, title: str, where: str) -> None:
    """Refuse a coroutine or a generator: an op is called and answers.

    Raises:
        TaskError: `async def`, or a `yield` in the body.
    """
    if isinstance(function, ast.AsyncFunctionDef):
        raise task_error(where, f"{title} is async", f"write `def {function.name}`", line=function.lineno)
    for node in own_nodes(function):
        if isinstance(node, ast.Yield | ast.YieldFrom):
            what = f"{title} is a generator (it has a yield)"
            raise task_error(where, what, "return the result instead", line=node.lineno)


def read_parameters(function: Function, title: str, where: str, *, method: bool = False) -> Parameters:
    """Read the positional parameters of a function; for a method, without its `self`.

    Raises:
        TaskError: a method has no `self`, or a keyword-only parameter has no default (inputs are passed by position).
    """
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    required = len(names) - len(arguments.defaults)
    if method:
        if (not names and arguments.vararg is None) or any(
            _is_name(node, "staticmethod") for node in function.decorator_list
        ):
            remedy = f"write `def {function.name}(self, ...)`"
            raise task_error(where, f"{title} takes no self", remedy, line=function.lineno)
        names, required = names[1:], max(0, required - 1)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is None:
            what = f"{title} needs the keyword `{argument.arg}`, but inputs are passed by position"
            raise task_error(where, what, "move it before the `*` or give it a default", line=argument.lineno)
    return Parameters(tuple(names), required, arguments.vararg is not None)


def count_results(function: Function, title: str, where: str, *, may_be_empty: bool) -> int | None:
    """Count the inputs that `get_inputs` or `get_init_inputs` returns; None where only running it would tell.

    Raises:
        TaskError: it takes arguments, returns nothing, an empty list (unless allowed) or a bare tensor.
    """
    check_plain(function, title, where)
    parameters = read_parameters(function, title, where)
    if parameters.required:
        remedy = f"write `def {function.name}():` and use module-level constants"
        raise task_error(
            where, f"{title} takes arguments ({', '.join(parameters.names)})", remedy, line=function.lineno
        )
    returns = sorted(
        (node for node in own_nodes(function) if isinstance(node, ast.Return)),
        key=lambda node: (node.lineno, node.col_offset),
    )
    example = "return [x, w]" if not may_be_empty else "return [] (or the arguments of Model)"
    if not returns and not any(isinstance(node, ast.Raise) for node in own_nodes(function)):
        raise task_error(where, f"{title} returns nothing", f"end it with `{example}`", line=function.lineno)
    counts = [_count_returned(node, title, where, may_be_empty, example) for node in returns]
    return counts[0] if len(set(counts)) == 1 else None


def check_counts(parameters: Parameters, count: int | None, titles: Sequence[str], where: str, line: int) -> None:
    """Refuse a function that cannot be called with as many inputs as there are; `titles` names the two sides.

    Raises:
        TaskError: the counts differ for certain.
    """
    if count is not None and not parameters.accept(count):
        what = f"{titles[0]} takes {parameters.describe()}, but {titles[1]} returns {count}"
        raise task_error(where, what, "make the two agree", line=line)


def _count_returned(node: ast.Return, title: str, where: str, may_be_empty: bool, example: str) -> int | None:
    value = node.value
    if value is None or (isinstance(value, ast.Constant) and value.value is None):
        raise task_error(where, f"{title} returns nothing", f"write `{example}`", line=node.lineno)
    if isinstance(value, ast.List | ast.Tuple):
        if not value.elts and not may_be_empty:
            what = f"{title} returns no inputs"
            raise task_error(where, what, "return the list of the op's input tensors", line=node.lineno)
        # `[[...], {...}]` is positional and keyword arguments in one public data set: only running it would tell.
        mixed = len(value.elts) == 2 and isinstance(value.elts[1], ast.Dict)
        return None if mixed or any(isinstance(item, ast.Starred) for item in value.elts) else len(value.elts)
    if isinstance(value, ast.Constant) or _makes_tensor(value):
        what = f"{title} returns one value where a list is needed"
        raise task_error(where, what, "wrap it in a list: `return [x]`", line=node.lineno)
    return None


def _makes_tensor(value: ast.expr) -> bool:
    function = value.func if isinstance(value, ast.Call) else None
    return (
        isinstance(function, ast.Attribute) and _is_name(function.value, "torch") and function.attr in _TENSOR_FACTORIES
    )


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _inputs(count: int) -> str:
    return f"{count} input" if count == 1 else f"{count} inputs"
