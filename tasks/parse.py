"""Reads the top-level definitions of Python text by `ast` only: nothing in it is ever compiled or executed."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from tasks import syntax
from tasks.text import task_error

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef

MAX_NODES = 50_000
"""The most nodes that the syntax tree of an op's file may have. Long files have a few thousand."""

MAX_BRACES = 10_000
"""The most opening braces in an op's file. The parser's time grows with the square of those in an f-string."""


@dataclass(frozen=True)
class Definitions:
    """The top level of a file: its functions and classes by name, and the line of every other name it binds."""

    tree: ast.Module
    functions: Mapping[str, Function]
    classes: Mapping[str, ast.ClassDef]
    assigned: Mapping[str, int]

    def line_of(self, name: str) -> int | None:
        """Return the line where a top-level name is bound; None if it is not."""
        definition = self.functions.get(name) or self.classes.get(name)
        return definition.lineno if definition else self.assigned.get(name)


def parse(source: str, where: str) -> ast.Module:
    """Parse Python text.

    Raises:
        TaskError: it is not Python, nested too deeply for Python's own parser, or has too many parts.
    """
    if source.count("{") > MAX_BRACES:
        raise task_error(where, f"has over {MAX_BRACES} opening braces", "cut it down to the one op to optimize")
    tree = _tree(source, where)
    if sum(1 for _ in islice(ast.walk(tree), MAX_NODES + 1)) > MAX_NODES:
        what = f"has over {MAX_NODES} names, values, operations and statements"
        raise task_error(where, what, "cut it down to the one op to optimize")
    return tree


def _tree(source: str, where: str) -> ast.Module:
    try:
        return syntax.parse(source)
    except SyntaxError as error:
        what = f"is not Python ({error.msg})"
        raise task_error(where, what, "fix the syntax", line=error.lineno or 1) from None
    except (RecursionError, MemoryError):
        raise task_error(where, "is nested too deeply to be parsed", "split the long expressions") from None
    except ValueError as error:  # what remains: for example an integer literal beyond the interpreter's limit
        raise task_error(where, f"is not Python ({error})", "fix the syntax") from None


def definitions(tree: ast.Module, where: str, *, once: frozenset[str]) -> Definitions:
    """List what a file defines at its top level.

    Raises:
        TaskError: a name of `once` is defined twice, or only inside an `if`, `try`, `with` or loop.
    """
    functions: dict[str, Function] = {}
    classes: dict[str, ast.ClassDef] = {}
    assigned: dict[str, int] = {}
    seen: dict[str, int] = {}
    for statement in tree.body:
        if isinstance(statement, Definition):
            name = statement.name
            if name in once and name in seen:
                what = f"{name} is defined twice (first on line {seen[name]})"
                raise task_error(where, what, "keep one of them", line=statement.lineno)
            seen[name] = statement.lineno
            functions.pop(name, None)
            classes.pop(name, None)
            if isinstance(statement, ast.ClassDef):
                classes[name] = statement
            else:
                functions[name] = statement
        else:
            assigned.update((name, statement.lineno) for name in _bound_names(statement))
    found = Definitions(tree, functions, classes, assigned)
    _refuse_hidden(found, where, once)
    return found


def literals(tree: ast.Module, where: str, remedies: Mapping[str, str]) -> dict[str, tuple[object, int]]:
    """The values and lines of constants at the top level, by name. `remedies` names the constants that are wanted.

    Raises:
        TaskError: a constant is given twice, or is not a literal; the text ends with its remedy.
    """
    found: dict[str, tuple[object, int]] = {}
    for statement in tree.body:
        name, value = assigned(statement)
        if name not in remedies or value is None:
            continue
        if name in found:
            raise task_error(where, f"gives its {name} twice", "keep one of them", line=statement.lineno)
        try:
            found[name] = (ast.literal_eval(value), statement.lineno)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            what = f"{name} is not a literal value"
            raise task_error(where, what, remedies[name], line=statement.lineno) from None
    return found


def assigned(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    """The one name that a statement assigns to, and the value; an empty name for other statements."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target: ast.expr = statement.targets[0]
        value: ast.expr | None = statement.value
    elif isinstance(statement, ast.AnnAssign):
        target, value = statement.target, statement.value
    else:
        return "", None
    return (target.id, value) if isinstance(target, ast.Name) else ("", None)


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """Walk the body of a function without entering the functions and classes defined inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Definition | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield (alias.asname or alias.name).partition(".")[0]
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _refuse_hidden(found: Definitions, where: str, once: frozenset[str]) -> None:
    for statement in found.tree.body:
        if isinstance(statement, Definition):
            continue
        for node in ast.walk(statement):
            if isinstance(node, Definition) and node.name in once:
                what = f"{node.name} is defined inside a {type(statement).__name__.lower()} statement"
                raise task_error(where, what, "move it to the top level of the file", line=node.lineno)
