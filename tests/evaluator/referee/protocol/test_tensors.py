"""Trees: nested values whose tensors are named by place; what a runner sends is never trusted."""

import json
import mmap
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.protocol.tensors import TensorRow, TooLarge, Tree, TreeError, decode, encode, view

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_a_tree_or_a_tree_error(data: Any) -> None:
    try:
        tree = Tree.from_json(data)
    except TreeError:
        return
    assert all(row.span_bytes >= 0 for row in tree.tensors if row.dtype == "float32")


def row_json(**changes: Any) -> dict[str, Any]:
    row = {"place": 64, "dtype": "float32", "shape": [2, 3], "stride": [3, 1], "device": "cpu", "layout": "strided"}
    return {**row, **changes}


odd_numbers = st.integers() | st.floats() | st.sampled_from([2**63, 2**70, -1, 0, 1, 10**400, float("inf"), True])
odd = odd_numbers | st.none() | st.text(max_size=3) | st.lists(odd_numbers, max_size=3)


@given(st.dictionaries(st.sampled_from(["place", "dtype", "shape", "stride", "device", "layout"]), odd), odd)
def test_any_row_and_any_scalar_is_a_tree_of_bounded_size_or_a_tree_error(changes: dict[str, Any], scalar: Any) -> None:
    spec = {"list": [{"tensor": 0}, {"scalar": scalar}]}
    try:
        tree = Tree.from_json({"spec": spec, "tensors": [row_json(**changes)]}, limit_bytes=1 << 30)
    except TreeError as error:
        assert len(str(error)) < 300
        return
    (row,) = tree.tensors
    assert 0 <= row.span_bytes <= 1 << 30
    assert 0 <= row.element_bytes <= 1 << 30
    assert isinstance(row.place, int)
    assert scalar is None or isinstance(scalar, str | float) or abs(scalar) < 2**64


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [10**13], "stride": [0]},  # expand(): ten trillion elements on four bytes
        {"shape": [2], "stride": [2**44]},
        {"shape": [2**62, 2**62], "stride": [1, 1]},
    ],
    ids=["elements", "span", "both"],
)
def test_tensors_that_nobody_could_hold_are_too_large(changes: dict[str, Any]) -> None:
    with pytest.raises(TooLarge, match="more than the 1,073,741,824 allowed"):
        Tree.from_json({"spec": {"tensor": 0}, "tensors": [row_json(**changes)]}, limit_bytes=1 << 30)


def test_many_tensors_are_too_large_together() -> None:
    rows = [row_json(shape=[1 << 20], stride=[1])] * 300
    with pytest.raises(TooLarge):
        Tree.from_json({"spec": {"list": [{"tensor": n} for n in range(300)]}, "tensors": rows}, limit_bytes=1 << 30)


@pytest.mark.parametrize("place", [float("inf"), float("nan"), 2**70, "7", None, True, 1.0])
def test_a_place_is_a_whole_number_of_64_bits(place: Any) -> None:
    with pytest.raises(TreeError):
        Tree.from_json({"spec": {"tensor": 0}, "tensors": [row_json(place=place)]})


def test_a_nested_value_comes_back_with_its_tensors() -> None:
    value: Any = [
        torch.arange(6).view(2, 3).t(),
        {"scale": 0.5, "pair": (torch.ones(2, dtype=torch.bool), None)},
        "mode",
    ]
    tree, tensors = encode(value)
    again = Tree.from_json(json.loads(json.dumps(tree.to_json())))
    by_place = {tensor.data_ptr(): tensor for tensor in tensors}
    back = decode(again, lambda row: by_place[row.place])
    assert torch.equal(back[0], value[0])
    assert back[1]["scale"] == 0.5
    assert back[1]["pair"][1] is None
    assert back[2] == "mode"


@pytest.mark.parametrize(
    "rows",
    [
        [{"place": -1, "dtype": "float32", "shape": [1], "stride": [1], "device": "cpu", "layout": "strided"}],
        [{"place": 0, "dtype": "float32", "shape": [-1], "stride": [1], "device": "cpu", "layout": "strided"}],
        [{"place": 0, "dtype": "float32", "shape": [1, 2], "stride": [1], "device": "cpu", "layout": "strided"}],
        [],
        [{}],
    ],
)
def test_forged_rows_are_refused(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(TreeError):
        Tree.from_json({"spec": {"tensor": 0}, "tensors": rows})


def test_two_leaves_cannot_share_a_row_and_depth_is_bounded() -> None:
    tree, _ = encode(torch.ones(1))
    row = tree.to_json()["tensors"][0]
    with pytest.raises(TreeError):
        Tree.from_json({"spec": {"list": [{"tensor": 0}, {"tensor": 0}]}, "tensors": [row]})
    spec: Any = {"tensor": 0}
    for _ in range(200):
        spec = {"list": [spec]}
    with pytest.raises(TreeError):
        Tree.from_json({"spec": spec, "tensors": [row]})


class Lazy(torch.Tensor):
    """A subclass could compute its values after the clock has stopped."""


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        torch.ones(2).as_subclass(Lazy),
        2**70,
        "x" * 20_000,
        [0.5] * 100_000,
        [torch.ones(1)] * 5000,
        {(1, 2): 3},
        {None: 3},
        torch.ones(2, dtype=torch.float8_e4m3fn),
        torch.float8_e4m3fn,
    ],
    ids=[
        "object", "set", "subclass", "wide integer", "long text", "many values", "many tensors",
        "tuple for a key", "None for a key", "dtype of a tensor", "dtype",
    ],
)  # fmt: skip
def test_values_that_the_referee_could_not_read_are_refused_where_they_are_made(value: Any) -> None:
    with pytest.raises(TreeError):
        encode([value])


def test_a_view_of_shared_memory_has_the_rows_shape_and_strides() -> None:
    buffer = mmap.mmap(-1, 4096)
    buffer[64 : 64 + 24] = torch.arange(6, dtype=torch.float32).numpy().tobytes()
    seen = view(buffer, TensorRow(64, "float32", (3, 2), (1, 3)))
    assert seen.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert view(buffer, TensorRow(64, "float32", (0, 2), (2, 1))).shape == (0, 2)
