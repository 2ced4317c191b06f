"""Parses a Python module that TorchInductor generated: its C++ kernels, and the body of its `call`."""

import ast
import re
from dataclasses import dataclass

from agents.builtin.errors import NotTranslatable
from tasks import syntax

_BOILERPLATE = re.compile(r"^[ \t]*(std::atomic<int> inductor_cpu_integer_div_error|inductor_cpu_).*\n", re.MULTILINE)
_INT64 = re.compile(r"static_cast<int64_t>\((-?\d+)L?\)")
_INDEX_CAST = re.compile(r"static_cast<int64_t>(\((?:[\sL0-9+*-]|x\d+(?:_inner)?|\([\sL0-9x+*-]*\))+\))")
_STATIC = re.compile(r"\bstatic (?=\w*Helper<)")  # helpers hold sums, which threads must not share
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Kernel:
    """One C++ function: the types and names of its parameters, and the text between its braces."""

    name: str
    types: tuple[str, ...]
    names: tuple[str, ...]
    body: str


@dataclass(frozen=True)
class Module:
    """The kernels, the names of the arguments of `call`, and its statements after their unpacking."""

    kernels: tuple[Kernel, ...]
    parameters: tuple[str, ...]
    statements: tuple[ast.stmt, ...]


def read_module(text: str) -> Module:
    """Parse the text of a module. It is never executed.

    Raises:
        NotTranslatable: a part of it has an unknown form.
    """
    try:
        tree = syntax.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotTranslatable("the generated module is not Python") from error
    kernels = tuple(kernel for node in tree.body if (kernel := _kernel(node)) is not None)
    call = _find_call(tree)
    statements = list(call.body)
    first = statements[0] if statements else None
    if not (isinstance(first, ast.Assign) and isinstance(first.value, ast.Name) and first.value.id == "args"):
        raise NotTranslatable("the generated call does not begin with its arguments")
    target = first.targets[0]
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    parameters = tuple(name.id for name in names if isinstance(name, ast.Name))
    return Module(kernels, parameters, tuple(statements[1:]))


def _kernel(node: ast.stmt) -> Kernel | None:
    if not (
        isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name)
    ):
        return None
    function = ast.unparse(node.value.func)
    if not function.startswith("async_compile."):
        return None
    if function != "async_compile.cpp_pybinding" or len(node.value.args) != 2:
        raise NotTranslatable(f"a kernel made by {function}")
    types, source = (ast.literal_eval(argument) for argument in node.value.args)
    if not all(isinstance(kind, str) and kind.endswith("*") for kind in types):
        raise NotTranslatable("a kernel that takes more than pointers")
    return _split_kernel(node.targets[0].id, tuple(types), source)


def _split_kernel(name: str, types: tuple[str, ...], source: str) -> Kernel:
    head = re.search(r'extern "C"\s+void\s+kernel\((.*?)\)\s*\{', source, re.DOTALL)
    if head is None or "}" not in source:
        raise NotTranslatable("a kernel without a head")
    before = source[: head.start()].replace("#include <torch/csrc/inductor/cpp_prefix.h>", "").strip()
    if before:
        raise NotTranslatable("a kernel with helpers of its own")
    names = tuple(_NAME.findall(parameter)[-1] for parameter in head[1].split(","))
    body = "\n" + source[head.end() : source.rindex("}")].strip("\n") + "\n"
    body = _BOILERPLATE.sub("", body)
    body = _STATIC.sub("", body)
    body = _INDEX_CAST.sub(r"\1", _INT64.sub(r"\1L", body)).replace("at::vec::", "")
    return Kernel(name, types, names, body)


def _find_call(tree: ast.Module) -> ast.FunctionDef:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "call":
            return node
    raise NotTranslatable("no call in the generated module")
