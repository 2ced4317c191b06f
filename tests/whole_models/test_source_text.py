"""Nodes as Python: each text, run, gives what the operator gives; order, memory and containers of statements."""

import ast
import math

import pytest
import torch

from whole_models import source_text
from whole_models.graph import Argument, Graph, GraphInput, Node, Ref, TensorFacts, TorchName
from whole_models.source_text import argument_text, expression, named, statements, tree_text

FACTS = TensorFacts((1,), (1,), "float32")
A, B, C, D = Ref("a"), Ref("b"), Ref("c"), Ref("d")
Calls = list[tuple[tuple[Argument, ...], dict[str, Argument]]]


def tensors() -> dict[str, torch.Tensor]:
    """Positive numbers below one, so that every function is defined on them."""
    torch.manual_seed(0)
    return {
        "a": torch.rand(3, 4, 4) * 0.9 + 0.05,
        "b": torch.rand(3, 4, 4) * 0.9 + 0.05,
        "c": torch.rand(3, 4, 4) * 0.9 + 0.05,
        "mask": torch.rand(3, 4, 4) < 0.5,
        "m": torch.randn(4, 4),
        "n": torch.randn(4, 4),
        "v": torch.randn(4),
        "image": torch.randn(2, 4, 6, 6),
        "filter": torch.randn(4, 2, 3, 3),
        "line": torch.randn(2, 4, 9),
        "filter1": torch.randn(4, 4, 3),
        "heads": torch.randn(2, 4, 5, 8),
        "few": torch.randn(2, 2, 5, 8),
        "visible": torch.ones(5, 5, dtype=torch.bool).tril(),
        "whole": torch.randint(-9, 9, (3, 4)),
        "zero": torch.tensor(0.0),
    }


ONE: Calls = [((A,), {})]
INFIX: Calls = [((A, B), {}), ((A, 2.5), {}), ((A, -3), {}), ((Ref("whole"), 2), {})]
COMPARED: Calls = [((A, 0.5), {}), ((A, -1), {}), ((Ref("whole"), 0), {}), ((A, math.inf), {})]
REDUCED: Calls = [
    ((A, (-1,)), {}),
    ((A, (1, 2), True), {}),
    ((A, (0,), False), {"dtype": TorchName("dtype", "float64")}),
]
M, N, V = Ref("m"), Ref("n"), Ref("v")
HEADS, FEW = Ref("heads"), Ref("few")
SAMPLES: dict[str, Calls] = {
    "aten.add.Tensor": [*INFIX, ((A, B), {"alpha": 2}), ((A, True), {})],
    "aten.sub.Tensor": [*INFIX, ((A, B), {"alpha": 2})],
    "aten.mul.Tensor": INFIX,
    "aten.div.Tensor": INFIX,
    "aten.matmul.default": [((A, B), {}), ((M, V), {}), ((A, N), {})],
    "aten.pow.Tensor_Scalar": [((A, 2), {}), ((A, -0.5), {}), ((Ref("whole"), 2), {})],
    "aten.lt.Scalar": COMPARED,
    "aten.le.Scalar": COMPARED,
    "aten.gt.Scalar": COMPARED,
    "aten.ge.Scalar": COMPARED,
    "aten.linear.default": [((A, M), {}), ((A, M, V), {}), ((A, M, None), {})],
    "aten.conv1d.default": [
        ((Ref("line"), Ref("filter1")), {}),
        ((Ref("line"), Ref("filter1"), V, (2,), (1,), (1,), 1), {}),
    ],
    "aten.conv2d.default": [
        ((Ref("image"), Ref("filter"), None, (1, 1), (1, 1), (1, 1), 2), {}),
        ((Ref("image"), Ref("filter"), V, (2, 2), (1, 1), (2, 2), 2), {}),
    ],
    "aten.silu.default": ONE,
    "aten.gelu.default": [*ONE, ((A,), {"approximate": "tanh"})],
    "aten.softplus.default": [*ONE, ((A, 2.0, 0.5), {})],
    "aten.layer_norm.default": [
        ((A, (4,)), {}),
        ((A, (4,), V, V, 1e-6), {}),
        ((A, (4, 4), M, N, 1e-5, False), {}),
        ((A, (4,), V), {"cudnn_enable": False}),
    ],
    "aten.scaled_dot_product_attention.default": [
        ((HEADS, HEADS, HEADS), {}),
        ((HEADS, HEADS, HEADS, None, 0.0, True), {"scale": 0.25}),
        ((HEADS, HEADS, HEADS, Ref("visible"), 0.0, False), {}),
        ((HEADS, FEW, FEW, None, 0.0, True), {"enable_gqa": True}),
    ],
    "aten.softmax.int": [((A, -1), {}), ((A, 1, TorchName("dtype", "float64")), {}), ((A, 0, None), {})],
    "aten.cat.default": [(((A, B, C),), {}), (((A, B), -1), {})],
    "aten.stack.default": [(((A, B, C),), {}), (((A, B), 1), {})],
    "aten.bmm.default": [((A, B), {})],
    "aten.mm.default": [((M, N), {})],
    "aten.addmm.default": [((V, M, N), {}), ((M, M, N), {"beta": 2, "alpha": 0.5})],
    "aten.mean.dim": [*REDUCED, ((A, None), {})],
    "aten.sum.dim_IntList": [*REDUCED, ((A, None), {}), ((Ref("mask"), (1,)), {})],
    "aten.amax.default": [((A, (-1,)), {}), ((A, (0, 2), True), {}), ((A,), {})],
    "aten.where.self": [((Ref("mask"), A, B), {}), ((Ref("mask"), A, Ref("zero")), {})],
    "aten.cumsum.default": [((A, 1), {}), ((Ref("whole"), -1), {"dtype": TorchName("dtype", "float32")})],
    "aten.bitwise_not.default": [((Ref("mask"),), {}), ((Ref("whole"),), {})],
    "aten.view.default": [((A, (12, 4)), {}), ((A, (-1,)), {})],
    "aten.reshape.default": [((A, (2, 6, 4)), {})],
    "aten.permute.default": [((A, (2, 0, 1)), {})],
    "aten.transpose.int": [((A, -2, -1), {})],
    "aten.unsqueeze.default": [((A, 1), {}), ((A, -1), {})],
    "aten.squeeze.dim": [((A, 0), {})],
    "aten.expand.default": [((V, (3, -1)), {}), ((V, (3, 4)), {"implicit": True})],
    "aten.clone.default": [((A,), {}), ((A,), {"memory_format": TorchName("memory_format", "contiguous_format")})],
    "aten.contiguous.default": ONE,
    "aten.flatten.using_ints": [((A, 1), {}), ((A, 0, 1), {})],
    "aten.split.Tensor": [((A, 2, -1), {}), ((A, 2), {})],
    "aten.split_with_sizes.default": [((A, (1, 3), -1), {}), ((A, (1, 2)), {})],
    "aten.unbind.int": [((A, 1), {}), ((A,), {})],
    "aten.select.int": [((A, 1, -1), {})],
    "aten.masked_fill.Scalar": [((A, Ref("mask"), -math.inf), {}), ((A, Ref("mask"), 0), {})],
    "aten.masked_fill.Tensor": [((A, Ref("mask"), Ref("zero")), {})],
    **{f"aten.{name}.default": ONE for name in source_text._SAME_NAME},
}
# Operators without a text of their own, for the form that all of those have.
OTHERS: dict[str, Calls] = {
    "aten.slice.Tensor": [((A, 1, 1, 3), {}), ((A, -1, 0, 2**63 - 1, 2), {})],
    "aten.index.Tensor": [((A, (None, Ref("picks"))), {})],
    "aten.rsub.Scalar": [((A, 1), {})],
    "aten.full.default": [
        (((2, 3), -math.inf), {"dtype": TorchName("dtype", "float64"), "device": TorchName("device", "cpu")})
    ],
    "aten._to_copy.default": [((A,), {"dtype": TorchName("dtype", "bfloat16")})],
}


def node(operator: str, args: tuple[Argument, ...], kwargs: dict[str, Argument], name: str = "y") -> Node:
    return Node(name, operator, args, tuple(kwargs.items()), (FACTS,), False, "", "", True)


def value_of(argument: Argument, values: dict[str, torch.Tensor]) -> object:
    if isinstance(argument, Ref):
        return values[argument.name]
    if isinstance(argument, TorchName):
        return torch.device(argument.name) if argument.kind == "device" else getattr(torch, argument.name)
    return [value_of(each, values) for each in argument] if isinstance(argument, tuple) else argument


def test_every_operator_with_a_text_of_its_own_is_tried() -> None:
    assert set(SAMPLES) == {*source_text._INFIX, *source_text._FUNCTIONS, *source_text._METHODS}


@pytest.mark.parametrize("operator", [*SAMPLES, *OTHERS])
def test_the_text_of_a_node_gives_what_its_operator_gives(operator: str) -> None:
    _, name, overload = operator.split(".")
    call = getattr(getattr(torch.ops.aten, name), overload)
    values = {**tensors(), "picks": torch.tensor([2, 0])}
    for args, kwargs in {**SAMPLES, **OTHERS}[operator]:
        want = call(
            *(value_of(each, values) for each in args),
            **{word: value_of(each, values) for word, each in kwargs.items()},
        )
        text = expression(node(operator, args, kwargs), lambda each: each)
        got = eval(text, {"torch": torch, **values})
        for one, other in zip(
            *((each if isinstance(each, list | tuple) else [each]) for each in (got, want)), strict=True
        ):
            assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride()), text
            assert torch.equal(one, other), text


def test_what_stands_for_a_name_is_the_callers_choice() -> None:
    text = expression(node("aten.mul.Tensor", (A, B), {}), named({"a": "self.layers[0].weight", "b": "x0"}))
    assert text == "self.layers[0].weight * x0"


def test_an_item_of_several_results_is_an_index() -> None:
    assert expression(node("getitem", (A, 1), {}), lambda each: each) == "a[1]"


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (math.inf, 'float("inf")'),
        (-math.inf, 'float("-inf")'),
        (math.nan, 'float("nan")'),
        (1e-5, "1e-05"),
        (True, "True"),
        (None, "None"),
        ('a"b\\', repr('a"b\\')),
        ((1, (A, None)), "[1, [a, None]]"),
        (TorchName("dtype", "bool"), "torch.bool"),
        (TorchName("device", "cpu"), 'torch.device("cpu")'),
    ],
)
def test_arguments(argument: Argument, text: str) -> None:
    assert argument_text(argument, lambda each: each) == text
    ast.parse(text)


def chain() -> Graph:
    inputs = (GraphInput("x", "argument", tensor=FACTS),)
    nodes = (
        node("aten.exp.default", (Ref("x"),), {}, "first"),
        node("aten.neg.default", (Ref("first"),), {}, "second"),
        node("aten.mul.Tensor", (Ref("second"), Ref("first")), {}, "third"),
    )
    return Graph("", "Model", (), 1, ["tuple", [["leaf"]]], (), ["leaf"], inputs, nodes, (Ref("third"),), (), None)


def test_a_variable_lives_until_its_last_use() -> None:
    lines = statements(chain(), ("first", "second", "third"), lambda each: each, kept=frozenset({"third"}))
    assert lines == ["first = torch.exp(x)", "second = torch.neg(first)", "third = second * first", "del first, second"]


def test_what_is_not_among_the_nodes_is_never_deleted() -> None:
    assert statements(chain(), ("second", "third"), lambda each: each, kept=frozenset({"second", "third"})) == [
        "second = torch.neg(first)",
        "third = second * first",
    ]


def test_containers() -> None:
    tree = ["tuple", [["leaf"], ["dict", ["k", 3], [["list", [["leaf"]]], ["tuple", [["leaf"]]]]]]]
    assert tree_text(tree, ["a", "b", "c"]) == "(a, {'k': [b], 3: (c,)})"
    assert tree_text(["leaf"], ["a"]) == "a"


@pytest.mark.parametrize("leaves", [[], ["a", "b"]])
def test_leaves_that_do_not_fit_are_refused(leaves: list[str]) -> None:
    with pytest.raises(ValueError, match="leaves"):
        tree_text(["tuple", [["leaf"]]], leaves)
