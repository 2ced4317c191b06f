"""Trees: nested values whose tensors are named by place; what a runner sends is never trusted."""

import json
import mmap
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.tree import TensorRow, Tree, TreeError, decode, encode, view

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
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


def test_a_nested_value_comes_back_with_its_tensors() -> None:
    value = [torch.arange(6).view(2, 3).t(), {"scale": 0.5, "pair": (torch.ones(2, dtype=torch.bool), None)}, "mode"]
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
    [object(), {1, 2}, torch.ones(2).as_subclass(Lazy), torch.ones(2, dtype=torch.complex64).conj()],
    ids=["object", "set", "subclass", "lazy conj"],
)
def test_values_without_plain_memory_are_refused(value: Any) -> None:
    with pytest.raises(TreeError):
        encode([value])


def test_a_view_of_shared_memory_has_the_rows_shape_and_strides() -> None:
    buffer = mmap.mmap(-1, 4096)
    buffer[64 : 64 + 24] = torch.arange(6, dtype=torch.float32).numpy().tobytes()
    seen = view(buffer, TensorRow(64, "float32", (3, 2), (1, 3)))
    assert seen.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert view(buffer, TensorRow(64, "float32", (0, 2), (2, 1))).shape == (0, 2)
