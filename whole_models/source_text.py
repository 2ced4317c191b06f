"""Nodes of a graph as Python: an expression for a call of an operator, with names that the caller chooses."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from whole_models.graph import GET_ITEM, Argument, Graph, Node, Ref, TorchName

_INFIX = {
    "aten.add.Tensor": "+",
    "aten.sub.Tensor": "-",
    "aten.mul.Tensor": "*",
    "aten.div.Tensor": "/",
    "aten.matmul.default": "@",
    "aten.pow.Tensor_Scalar": "**",
    "aten.lt.Scalar": "<",
    "aten.le.Scalar": "<=",
    "aten.gt.Scalar": ">",
    "aten.ge.Scalar": ">=",
}
_SAME_NAME = ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "relu", "abs", "erf", "neg", "reciprocal")
# Functions that take what the operator takes, in the same order. Operators without one are called as they are.
_FUNCTIONS = {
    **{f"aten.{name}.default": f"torch.{name}" for name in _SAME_NAME},
    "aten.linear.default": "torch.nn.functional.linear",
    "aten.conv1d.default": "torch.nn.functional.conv1d",
    "aten.conv2d.default": "torch.nn.functional.conv2d",
    "aten.silu.default": "torch.nn.functional.silu",
    "aten.gelu.default": "torch.nn.functional.gelu",
    "aten.softplus.default": "torch.nn.functional.softplus",
    "aten.layer_norm.default": "torch.nn.functional.layer_norm",
    "aten.scaled_dot_product_attention.default": "torch.nn.functional.scaled_dot_product_attention",
    "aten.softmax.int": "torch.softmax",
    "aten.cat.default": "torch.cat",
    "aten.stack.default": "torch.stack",
    "aten.bmm.default": "torch.bmm",
    "aten.mm.default": "torch.mm",
    "aten.addmm.default": "torch.addmm",
    "aten.mean.dim": "torch.mean",
    "aten.sum.dim_IntList": "torch.sum",
    "aten.amax.default": "torch.amax",
    "aten.where.self": "torch.where",
    "aten.cumsum.default": "torch.cumsum",
    "aten.bitwise_not.default": "torch.bitwise_not",
}
_METHODS = {
    "aten.view.default": "view",
    "aten.reshape.default": "reshape",
    "aten.permute.default": "permute",
    "aten.transpose.int": "transpose",
    "aten.unsqueeze.default": "unsqueeze",
    "aten.squeeze.dim": "squeeze",
    "aten.expand.default": "expand",
    "aten.clone.default": "clone",
    "aten.contiguous.default": "contiguous",
    "aten.flatten.using_ints": "flatten",
    "aten.split.Tensor": "split",
    "aten.split_with_sizes.default": "split_with_sizes",
    "aten.unbind.int": "unbind",
    "aten.select.int": "select",
    "aten.masked_fill.Scalar": "masked_fill",
    "aten.masked_fill.Tensor": "masked_fill",
}
# Positional arguments that the function does not take: they choose an implementation, not a result.
_NOT_TAKEN = {"aten.layer_norm.default": 5}

NameOf = Callable[[str], str]
"""The expression that stands for a node or an input, by its name in the graph."""


def expression(node: Node, name_of: NameOf) -> str:
    """The call of a node as a Python expression; the text needs `import torch`."""
    args = [argument_text(argument, name_of) for argument in node.args[: _NOT_TAKEN.get(node.operator)]]
    keywords = [
        f"{name}={argument_text(value, name_of)}"
        for name, value in node.kwargs
        if node.operator not in _NOT_TAKEN or name != "cudnn_enable"
    ]
    if node.operator == GET_ITEM:
        return f"{args[0]}[{args[1]}]"
    if node.operator in _INFIX and len(args) == 2 and not keywords and isinstance(node.args[0], Ref):
        right = f"({args[1]})" if args[1].startswith("-") else args[1]
        return f"{args[0]} {_INFIX[node.operator]} {right}"
    if node.operator in _METHODS and node.args and isinstance(node.args[0], Ref):
        return f"{args[0]}.{_METHODS[node.operator]}({', '.join([*args[1:], *keywords])})"
    function = _FUNCTIONS.get(node.operator) or f"torch.ops.{node.operator}"
    return f"{function}({', '.join([*args, *keywords])})"


def argument_text(argument: Argument, name_of: NameOf) -> str:
    """An argument as a Python expression."""
    if isinstance(argument, Ref):
        return name_of(argument.name)
    if isinstance(argument, TorchName):
        return f'torch.device("{argument.name}")' if argument.kind == "device" else f"torch.{argument.name}"
    if isinstance(argument, tuple):
        return "[" + ", ".join(argument_text(each, name_of) for each in argument) + "]"
    if isinstance(argument, float) and not math.isfinite(argument):
        return f'float("{argument}")'
    return repr(argument)


def statements(graph: Graph, names: Iterable[str], name_of: NameOf, *, kept: frozenset[str] = frozenset()) -> list[str]:
    """One assignment for each of these nodes, which are in the graph's order.

    A variable is deleted after its last use among them, so that its memory is freed as eager frees it.

    Args:
        graph: where the nodes are.
        names: the nodes.
        name_of: gives each node the variable that it is assigned to.
        kept: the nodes whose variables are not deleted.
    """
    order = list(names)
    last: dict[str, str] = {}
    for name in order:
        last[name] = name
        for ref in graph.node_of[name].refs:
            if ref in last:
                last[ref] = name
    lines = []
    for name in order:
        lines.append(f"{name_of(name)} = {expression(graph.node_of[name], name_of)}")
        gone = sorted(name_of(each) for each, user in last.items() if user == name and each not in kept)
        if gone:
            lines.append(f"del {', '.join(gone)}")
    return lines


def tree_text(tree: Any, leaves: Iterable[str]) -> str:
    """A tree of containers (`Graph.result`) as an expression, its leaves given in order.

    Raises:
        ValueError: there are more or fewer leaves than the tree has places.
    """
    remaining = iter(leaves)
    text = _tree(tree, remaining)
    if next(remaining, None) is not None:
        raise ValueError("more leaves than places in the tree")
    return text


def _tree(tree: Any, leaves: Any) -> str:
    if tree[0] == "leaf":
        leaf = next(leaves, None)
        if leaf is None:
            raise ValueError("fewer leaves than places in the tree")
        return str(leaf)
    if tree[0] == "dict":
        return (
            "{"
            + ", ".join(f"{key!r}: {_tree(child, leaves)}" for key, child in zip(tree[1], tree[2], strict=True))
            + "}"
        )
    children = [_tree(child, leaves) for child in tree[1]]
    if tree[0] == "list":
        return "[" + ", ".join(children) + "]"
    return "(" + ", ".join(children) + ("," if len(children) == 1 else "") + ")"


def named(names: Mapping[str, str]) -> NameOf:
    """A `NameOf` that reads a mapping."""
    return lambda name: names[name]
