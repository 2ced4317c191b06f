"""Rewrites the body of a generated `call` into Python that needs only torch and the loaded library of kernels."""

import ast
from collections.abc import Collection

from agents.builtin.errors import NotTranslatable
from tasks import syntax

LIBRARY = "LIBRARY"
PREPARED = "kernelwright_prepared"
"""`kernelwright_prepared(self, key, parameter, shape, kernel)`: what a kernel makes of a parameter, which is kept."""
# Functions of `extern_kernels` and torch's names for them.
_EXTERN = {
    "addmm": "torch.addmm",
    "baddbmm": "torch.baddbmm",
    "bmm": "torch.bmm",
    "convolution": "torch.ops.aten.convolution",
    "mm": "torch.mm",
    "_int_mm": "torch.ops.aten._int_mm",
}
_GLOBALS = frozenset({"torch", "aten", "math", "inf", "nan", "device"})


def rewrite_call(
    statements: Collection[ast.stmt], parameters: Collection[str], kernels: Collection[str]
) -> tuple[list[str], list[str]]:
    """Rewrite the statements of a `call`.

    Args:
        statements: its body without the first statement, which unpacks the arguments.
        parameters: the names of its arguments.
        kernels: the names of the kernels.

    Returns:
        Lines of Python, and the expressions that `call` returns.

    Raises:
        NotTranslatable: a statement has an unknown form.
    """
    known = set(parameters)
    lines: list[str] = []
    for statement in statements:
        if isinstance(statement, ast.Return):
            value = statement.value
            if not isinstance(value, ast.Tuple):
                raise NotTranslatable("a call that returns no tuple")
            _check_names(value, known)
            return lines, [ast.unparse(_rewrite(item, kernels)) for item in value.elts]
        if _is_omitted(statement, parameters):
            continue
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            _check_names(statement.value, known | (set(kernels) if _calls_prepared(statement.value) else set()))
            for node in ast.walk(statement.targets[0]):
                if isinstance(node, ast.Name):
                    known.add(node.id)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            _check_names(statement.value, known | set(kernels))
        elif not isinstance(statement, ast.Delete):
            raise NotTranslatable(f"a call with a statement {type(statement).__name__}")
        lines.append(ast.unparse(_rewrite(statement, kernels)))
    raise NotTranslatable("a call that returns nothing")


def _calls_prepared(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == PREPARED


def _is_omitted(statement: ast.stmt, parameters: Collection[str]) -> bool:
    """Whether a candidate needs no such statement: it checks its arguments itself and may keep them."""
    if isinstance(statement, ast.Delete):
        return all(isinstance(target, ast.Name) and target.id in parameters for target in statement.targets)
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    function = statement.value.func
    if isinstance(function, ast.Name) and function.id == "assert_size_stride":
        checked = statement.value.args[0]
        return isinstance(checked, ast.Name) and checked.id in parameters
    return ast.unparse(function) in ("assert_alignment", "args.clear")


def _check_names(node: ast.AST, known: Collection[str]) -> None:
    special = {"extern_kernels", "reinterpret_tensor", "empty_strided_cpu", "assert_size_stride", PREPARED, "self"}
    for child in ast.walk(node):
        if (
            isinstance(child, ast.Name)
            and child.id not in known
            and child.id not in _GLOBALS
            and child.id not in special
        ):
            raise NotTranslatable(f"a call that uses {child.id[:80]}")


def _rewrite(node: ast.AST, kernels: Collection[str]) -> ast.AST:
    rewritten: ast.AST = _Rewriter(kernels).visit(node)
    return ast.fix_missing_locations(rewritten)


def _expression(text: str) -> ast.expr:
    return syntax.expression(text)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, kernels: Collection[str]) -> None:
        self._kernels = kernels

    def visit_Name(self, node: ast.Name) -> ast.expr:
        plain = {"aten": "torch.ops.aten", "inf": "float('inf')", "nan": "float('nan')", "device": "torch.device"}
        return _expression(plain[node.id]) if node.id in plain else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = node.func
        if _calls_prepared(node) and node.args:
            *others, kernel = node.args
            if isinstance(kernel, ast.Name) and kernel.id in self._kernels:
                return ast.Call(function, [*others, _expression(f"{LIBRARY}.{kernel.id}")], [])
        arguments = [self.visit(argument) for argument in node.args]
        keywords = [ast.keyword(keyword.arg, self.visit(keyword.value)) for keyword in node.keywords]
        if isinstance(function, ast.Name) and function.id in self._kernels:
            pointers: list[ast.expr] = [
                ast.Call(ast.Attribute(item, "data_ptr", ast.Load()), [], []) for item in arguments
            ]
            return ast.Call(_expression(f"{LIBRARY}.{function.id}"), pointers, [])
        if isinstance(function, ast.Name) and function.id == "empty_strided_cpu" and len(arguments) == 3:
            return ast.Call(_expression("torch.empty_strided"), arguments[:2], [ast.keyword("dtype", arguments[2])])
        if isinstance(function, ast.Name) and function.id == "assert_size_stride" and len(arguments) >= 3:
            return ast.Call(_expression("check_layout"), arguments[:3], [])
        if isinstance(function, ast.Name) and function.id == "reinterpret_tensor" and len(arguments) == 4:
            return ast.Call(_expression("view"), arguments, [])
        if isinstance(function, ast.Attribute) and ast.unparse(function.value) == "extern_kernels":
            if function.attr not in _EXTERN:
                raise NotTranslatable(f"a call of extern_kernels.{function.attr}")
            return ast.Call(_expression(_EXTERN[function.attr]), arguments, keywords)
        return ast.Call(self.visit(function), arguments, keywords)
