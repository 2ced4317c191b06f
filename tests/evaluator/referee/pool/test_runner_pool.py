"""Inputs that are made several in a turn: which of them may lie in one memory."""

import pytest

from evaluator.referee.pool.input_supply import _share_memory
from evaluator.referee.protocol.tensors import TensorRow, Tree


def tree(*places: tuple[int, int]) -> Tree:
    """One float32 tensor for each (place, number of elements)."""
    rows = tuple(TensorRow(place, "float32", (count,), (1,)) for place, count in places)
    return Tree({"list": [{"tensor": number} for number in range(len(rows))]}, rows)


@pytest.mark.parametrize(
    ("trees", "shared"),
    [
        ([tree((0x1000, 16)), tree((0x2000, 16))], False),
        ([tree((0x1000, 16)), tree((0x1040, 16))], False),  # next to each other
        ([tree((0x1000, 16)), tree((0x1000, 16))], True),  # one buffer, filled anew
        ([tree((0x1000, 16)), tree((0x1020, 16))], True),  # overlapping slices of one
        ([tree((0x1000, 64), (0x1010, 4)), tree((0x1080, 4))], True),  # inside a larger one of another set
        ([tree((0x1000, 16), (0x1000, 16)), tree((0x2000, 16))], False),  # the same tensor twice in one set
        ([tree((0x1000, 0)), tree((0x1000, 0))], False),  # empty tensors lie nowhere
    ],
)
def test_sets_of_inputs_share_memory_where_a_tensor_of_one_lies_in_that_of_another(
    trees: list[Tree], shared: bool
) -> None:
    assert _share_memory(trees) is shared
    assert _share_memory(trees[::-1]) is shared
