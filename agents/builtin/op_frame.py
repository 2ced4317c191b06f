"""The frame of a candidate: the op's source with its class renamed, and its `forward` kept under another name."""

import ast
import copy
from dataclasses import dataclass

from agents.builtin.errors import NotTranslatable
from tasks import syntax
from tasks.rename import renamed_tree

CLASS = "Model"
NEW_CLASS = "ModelNew"
REFERENCE_FORWARD = "reference_forward"
_OMITTED = frozenset({"get_inputs", "get_init_inputs", "get_input_groups"})


@dataclass(frozen=True)
class Frame:
    """The parts of an op's source that a candidate is written around.

    Attributes:
        before_class: the source before the class.
        class_source: the class without `forward`; its last method is the original one as `reference_forward`.
        after_class: the source after the class.
        signature: the parameters of `forward`, `self` included.
        arguments: the names of its positional parameters without `self`.
        varargs: the name of its `*args`; None: it has none.
    """

    before_class: str
    class_source: str
    after_class: str
    signature: str
    arguments: tuple[str, ...]
    varargs: str | None


def read_frame(source: str) -> Frame:
    """The frame of a candidate for the op with this source.

    Raises:
        NotTranslatable: the source has no top-level class `Model`, or `forward` takes keyword-only arguments.
    """
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotTranslatable("the op's source is not Python") from error
    body = [node for node in tree.body if not _is_omitted(node)]
    position = next((i for i, node in enumerate(body) if isinstance(node, ast.ClassDef) and node.name == CLASS), None)
    if position is None:
        raise NotTranslatable(f"the op has no class {CLASS} at its top level")
    renamed = [renamed_tree(node, {CLASS: NEW_CLASS}) for node in body]
    model = renamed[position]
    assert isinstance(model, ast.ClassDef)
    forward = next((node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "forward"), None)
    if forward is None:
        forward = _inherited_forward()
        model.body.append(forward)
    arguments = forward.args
    if arguments.kwonlyargs or arguments.kwarg:
        raise NotTranslatable("forward takes keyword-only arguments")
    model.body.remove(forward)
    names = tuple(argument.arg for argument in arguments.posonlyargs + arguments.args)[1:]
    original = copy.deepcopy(forward)
    original.name = REFERENCE_FORWARD
    model.body.append(original)
    signature = copy.deepcopy(arguments)
    for argument in signature.posonlyargs + signature.args + ([signature.vararg] if signature.vararg else []):
        argument.annotation = None
    return Frame(
        before_class=_text(renamed[:position]),
        class_source=ast.unparse(model),
        after_class=_text(renamed[position + 1 :]),
        signature=ast.unparse(signature),
        arguments=names,
        varargs=arguments.vararg.arg if arguments.vararg else None,
    )


def _inherited_forward() -> ast.FunctionDef:
    function = syntax.parse("def forward(self, *arguments):\n    return super().forward(*arguments)").body[0]
    assert isinstance(function, ast.FunctionDef)
    return function


def _text(nodes: list[ast.stmt]) -> str:
    return "\n".join(ast.unparse(node) for node in nodes)


def _is_omitted(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name in _OMITTED
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # the docstring of the op
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
