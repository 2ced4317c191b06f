"""Reads the kernels out of a candidate's source, without running it: its `triton.jit` functions and what they use.

What comes of it holds nothing but the language of kernels, so that another process may run it and only the kernels ran.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_MODULES = frozenset({
    "triton", "triton.language", "triton.language.math", "triton.language.extra", "triton.language.extra.libdevice",
    "triton.language.extra.cuda", "triton.language.extra.cuda.libdevice",
})  # fmt: skip
"""Modules that kernels may name."""

_STATEMENTS = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Expr, ast.Return, ast.Pass, ast.Assert,
)  # fmt: skip
_EXPRESSIONS = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Attribute, ast.Name, ast.Constant, ast.Subscript,
    ast.Slice, ast.Tuple, ast.List, ast.IfExp, ast.JoinedStr, ast.FormattedValue, ast.keyword, ast.expr_context,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
BUILTINS = {
    "range": range, "len": len, "min": min, "max": max, "int": int, "float": float, "bool": bool, "abs": abs,
    "isinstance": isinstance, "print": lambda *_, **__: None, "tuple": tuple, "AssertionError": AssertionError,
}  # fmt: skip
"""Names of Python's that kernels may use."""

_OF_VALUES = frozenset({
    "T", "abs", "argmax", "argmin", "associative_scan", "atomic_add", "atomic_and", "atomic_cas", "atomic_max",
    "atomic_min", "atomic_or", "atomic_xchg", "atomic_xor", "broadcast_to", "cast", "cdiv", "ceil", "cos", "cumprod",
    "cumsum", "dtype", "element_ty", "erf", "exp", "exp2", "expand_dims", "flip", "floor", "gather", "histogram",
    "is_bf16", "is_block", "is_floating", "is_fp16", "is_fp32", "is_fp64", "is_int", "is_int32", "is_int64", "is_ptr",
    "item_ty", "load", "log", "log2", "logical_and", "logical_or", "max", "min", "numel", "permute",
    "primitive_bitwidth", "ravel", "reduce", "reshape", "rsqrt", "scalar", "shape", "sigmoid", "sin", "softmax", "sort",
    "split", "sqrt", "sqrt_rn", "store", "sum", "to", "trans", "type", "value", "view", "xor_sum",
})  # fmt: skip
"""What kernels may ask of a value; nothing here leads to an object of Python's."""

_TELLS = frozenset({"environ", "exec", "eval", "getenv", "globals", "inspect", "interpret", "locals", "sys", "torch"})
"""Names by which a kernel would tell the interpreter from a GPU, or leave it; no compiler for GPUs takes them."""

_NOT_LANGUAGE = frozenset({"core", "semantic", "standard", "random", "target_info", "extra"})


class SourceError(Exception):
    """The source holds what no kernel may; the text says which line and why."""


@dataclass(frozen=True)
class Forbidden:
    """A line of a kernel that tells the interpreter from a GPU."""

    line: int
    text: str


@dataclass(frozen=True)
class Kernels:
    """The kernels of a source.

    Attributes:
        text: a Python file with them and what they use, each at its line, and with nothing else.
        names: the functions that it defines.
        forbidden: by which a kernel would tell the interpreter.
    """

    text: str
    names: tuple[str, ...]
    forbidden: tuple[Forbidden, ...]


def kernels_of(source: str, wanted: tuple[str, ...]) -> Kernels:
    """The kernels of these names, with the functions and constants that they use.

    Raises:
        SourceError: one is not there, or holds what no kernel may.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SourceError(f"the source cannot be read: {error}") from None
    module = _Module(tree)
    lines = source.splitlines()
    written = [""] * (len(lines) + 1)
    names: list[str] = []
    pending, seen = [*wanted], set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in module.functions:
            function = module.functions[name]
            _copy(function, lines, written)
            names.append(name)
            pending += [each for each in _names(function) if each in module.functions or each in module.constants]
        elif name in module.constants:
            constant = module.constants[name]
            written[constant.lineno - 1] = ast.unparse(constant)
            pending += [each for each in _names(constant) if each in module.constants]
        else:
            raise SourceError(f"there is no kernel {name} in the source")
    head = "; ".join(["from triton import jit as _jit", *(ast.unparse(each) for each in module.imports)])
    text = "\n".join([f"{written[0]}{'; ' if written[0] and head else ''}{head}", *written[1:]]) + "\n"
    if any(written[0].startswith(word) for word in ("def", "@")):
        raise SourceError("line 1: a kernel stands before triton is imported")
    return Kernels(text, tuple(names), tuple(_check(text, module.aliases)))


class _Module:
    """What a source defines that kernels may use."""

    def __init__(self, tree: ast.Module) -> None:
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.aliases: dict[str, str] = {}
        self.constants: dict[str, ast.Assign | ast.AnnAssign] = {}
        self.functions: dict[str, ast.FunctionDef] = {}
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = node
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self.constants[node.target.id] = node
        for each in ast.walk(tree):
            if isinstance(each, ast.FunctionDef) and any(map(self._is_jit, each.decorator_list)):
                if each.name in self.functions:
                    raise SourceError(f"line {each.lineno}: there are two kernels of the name {each.name}")
                self.functions[each.name] = each

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name in _MODULES:
                    self.imports.append(ast.Import([each]))
                    self.aliases[each.asname or each.name.partition(".")[0]] = each.name if each.asname else "triton"
        elif node.level == 0 and node.module in _MODULES:
            kept = [each for each in node.names if each.name != "*"]
            if kept:
                self.imports.append(ast.ImportFrom(node.module, kept, 0))
            for each in kept:
                self.aliases[each.asname or each.name] = f"{node.module}.{each.name}"

    def _is_jit(self, decorator: ast.expr) -> bool:
        inner = decorator.func if isinstance(decorator, ast.Call) else decorator
        path = dotted(inner)
        if path is None:
            return False
        first, _, rest = path.partition(".")
        return f"{self.aliases.get(first, first)}{'.' if rest else ''}{rest}" in (
            "triton.jit", "triton.language.jit", "triton.runtime.jit", "triton.runtime.jit.jit",
        )  # fmt: skip


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of an expression that is a chain of names; else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _copy(function: ast.FunctionDef, lines: list[str], written: list[str]) -> None:
    """A function's lines at their place, under the one decorator `triton.jit`.

    Raises:
        SourceError: something else stands on its lines.
    """
    first, last = function.lineno - 1, (function.end_lineno or function.lineno) - 1
    if any(written[first : last + 1]) or first < 1:
        raise SourceError(f"line {function.lineno}: something else stands beside the kernel {function.name}")
    indent = function.col_offset
    for number in range(first, last + 1):
        line = lines[number]
        written[number] = line[indent:] if not line[:indent].strip() else line
    if not written[first].startswith("def "):
        raise SourceError(f"line {function.lineno}: something else stands beside the kernel {function.name}")
    if written[first - 1]:
        raise SourceError(f"line {first}: something else stands beside the kernel {function.name}")
    written[first - 1] = "@_jit"


def _check(text: str, aliases: Mapping[str, str]) -> list[Forbidden]:
    """See that a file of kernels holds nothing but their language.

    Raises:
        SourceError: it does, with the line.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise SourceError(f"the kernels cannot be read alone: {error}") from None
    if found := [each for node in tree.body if isinstance(node, ast.FunctionDef) for each in _telling(node)]:
        return found
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    constants = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    known = {*aliases, *defined, *constants, *BUILTINS}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            local = {each.arg for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
            if arguments.vararg or arguments.kwarg:
                raise SourceError(f"line {node.lineno}: a kernel takes no * and no **")
            stored = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            local |= {each.id for each in stored if isinstance(each.ctx, ast.Store)}
            for each in (*node.body, *arguments.defaults, *(arg.annotation for arg in arguments.args)):
                if each is not None:
                    _check_node(each, known | local, local, aliases)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            _check_node(node.value, known, set(), aliases)
        else:
            raise SourceError(f"line {node.lineno}: {type(node).__name__.lower()} is nothing of a kernel's")
    return []


def _check_node(top: ast.AST, known: set[str], local: set[str], aliases: Mapping[str, str]) -> None:
    chains = {id(node.value) for node in ast.walk(top) if isinstance(node, ast.Attribute)}
    for node in ast.walk(top):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Name):
            if node.id not in known:
                raise SourceError(f"line {line}: {node.id!r} is no kernel, no constant and no parameter")
            if node.id in aliases and node.id not in local and id(node) not in chains:
                _check_path(aliases[node.id], line)
        elif isinstance(node, ast.Attribute):
            path = dotted(node)
            first = path.partition(".")[0] if path else ""
            if path and first in aliases and first not in local:
                if id(node) not in chains:
                    _check_path(aliases[first] + path[len(first) :], line)
            elif node.attr not in _OF_VALUES:
                raise SourceError(f"line {line}: .{node.attr} is nothing that a kernel may ask of a value")
        elif not isinstance(node, (*_STATEMENTS, *_EXPRESSIONS)):
            raise SourceError(f"line {line}: {type(node).__name__.lower()} is nothing of a kernel's language")


def _telling(function: ast.FunctionDef) -> Iterator[Forbidden]:
    """What in a kernel tells the interpreter from a GPU."""
    for node in ast.walk(ast.Module(body=function.body, type_ignores=[])):
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal):
            yield Forbidden(node.lineno, ast.unparse(node))
        elif isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if name in _TELLS or "__" in name:
                yield Forbidden(node.lineno, name)


def _check_path(path: str, line: int) -> None:
    """See that a name of Triton's is one of the language.

    Raises:
        SourceError: it is not.
    """
    parts = path.split(".")
    if parts[:2] == ["triton", "language"]:
        rest = parts[2:]
        if rest[:1] == ["extra"]:
            rest = rest[-1:] if rest[-1] not in ("extra", "cuda", "libdevice") and "libdevice" in rest else ["", ""]
        if rest[:1] == ["math"]:
            rest = rest[1:]
        # Enumerations and types have members: `tl.PropagateNan.ALL`, `tl.float32.primitive_bitwidth`.
        members = rest[:1] == ["PropagateNan"] or all(each in _OF_VALUES for each in rest[1:])
        if rest and rest[0] not in _NOT_LANGUAGE and members:
            return
    elif parts[0] == "triton" and parts[1:] in (["cdiv"], ["next_power_of_2"]):
        return
    raise SourceError(f"line {line}: {path} is nothing of a kernel's language")
