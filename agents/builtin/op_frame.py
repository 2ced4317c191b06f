"""Turns an op's source into the frame of a candidate: its class renamed, its `forward` kept under another name."""

import ast
import copy
from dataclasses import dataclass

from agents.builtin.errors import NotTranslatable
from tasks import syntax

CLASS = "Model"
NEW_CLASS = "ModelNew"
KEPT_FORWARD = "reference_forward"
_LEFT_OUT = frozenset({"get_inputs", "get_init_inputs", "get_input_groups"})


@dataclass(frozen=True)
class Frame:
    """`before`: source of everything ahead of the class; `head`: of the class without `forward`, indented as written
    by `ast.unparse`, ending in its `reference_forward`; `after`: of what follows the class.

    `parameters`: forward's signature without `self`; `names`: those of its positional arguments; `rest`: that of its
    `*args`, if any.
    """

    before: str
    head: str
    after: str
    parameters: str
    names: tuple[str, ...]
    rest: str | None


def read_frame(source: str) -> Frame:
    """The frame of the op `source`.

    Raises:
        NotTranslatable: there is no class `Model` at its top level, or `forward` takes keyword-only arguments.
    """
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotTranslatable("the op's source is not Python") from error
    body = [node for node in tree.body if not _is_left_out(node)]
    position = next((i for i, node in enumerate(body) if isinstance(node, ast.ClassDef) and node.name == CLASS), None)
    if position is None:
        raise NotTranslatable(f"the op has no class {CLASS} at its top level")
    renamed = [_Rename().visit(copy.deepcopy(node)) for node in body]
    model = renamed[position]
    forward = next((node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "forward"), None)
    if forward is None:
        forward = _inherited_forward()
        model.body.append(forward)
    arguments = forward.args
    if arguments.kwonlyargs or arguments.kwarg:
        raise NotTranslatable("forward takes keyword-only arguments")
    model.body.remove(forward)
    names = tuple(argument.arg for argument in arguments.posonlyargs + arguments.args)[1:]
    kept = copy.deepcopy(forward)
    kept.name = KEPT_FORWARD
    model.body.append(kept)
    signature = copy.deepcopy(arguments)
    for argument in signature.posonlyargs + signature.args + ([signature.vararg] if signature.vararg else []):
        argument.annotation = None
    return Frame(
        before=_text(renamed[:position]),
        head=ast.unparse(model),
        after=_text(renamed[position + 1 :]),
        parameters=ast.unparse(signature),
        names=names,
        rest=arguments.vararg.arg if arguments.vararg else None,
    )


def _inherited_forward() -> ast.FunctionDef:
    function = syntax.parse("def forward(self, *arguments):\n    return super().forward(*arguments)").body[0]
    assert isinstance(function, ast.FunctionDef)
    return function


def _text(nodes: list[ast.stmt]) -> str:
    return "\n".join(ast.unparse(node) for node in nodes)


def _is_left_out(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name in _LEFT_OUT
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # the docstring of the task
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


class _Rename(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id == CLASS:
            node.id = NEW_CLASS
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        if node.name == CLASS:
            node.name = NEW_CLASS
        self.generic_visit(node)
        return node
