"""The rule by which inputs become smaller where a device is emulated."""

import json

import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.isolation.calls import InputSet
from evaluator.referee.pool.smaller_inputs import made_smaller, rules, says
from evaluator.referee.protocol.smaller_shapes import Smaller
from tests.support.input_sets import input_set, values_of

NONE_KEPT: frozenset[int] = frozenset()
SHAPES = st.lists(st.lists(st.integers(0, 5000), max_size=4).map(tuple), max_size=4)
PERIODS = st.sampled_from([None, 2, 32, 128])


def test_equal_sizes_stay_equal() -> None:
    rule = Smaller(NONE_KEPT, 128, None)
    assert rule.shapes([(4096, 1000), (1000, 4096), (4096,)]) == [(128, 232), (232, 128), (128,)]


def test_sizes_of_parameters_stay() -> None:
    assert Smaller(frozenset({64, 512}), 32, None).shapes([(16, 64, 256, 256), (8, 512)]) == [
        (16, 64, 32, 32),
        (8, 512),
    ]


def test_what_lies_first_becomes_small_alone_or_beside_the_others() -> None:
    assert Smaller(frozenset({4096}), None, 32).shapes([(4096, 4096), (4096, 7), (5, 4096)]) == [
        (32, 4096),
        (32, 7),
        (5, 4096),
    ]
    assert Smaller(NONE_KEPT, 128, 2).shapes([(16, 300), (8, 16)]) == [(2, 172), (8, 16)]


def test_of_a_batch_two_are_tried_before_other_sizes_and_of_rows_last() -> None:
    """With two rows a kernel has one row of tiles, so what is wrong in the others would not be found."""
    batch = input_set(torch.zeros(8, 3, 300), torch.zeros(400))
    assert _tried(batch) == [[(2, 3, 300), (400,)], [(8, 3, 172), (144,)], [(2, 3, 172), (144,)],
                             [(8, 3, 44), (48,)], [(2, 3, 44), (48,)]]  # fmt: skip
    rows = input_set(torch.zeros(1024, 64), torch.zeros(2048, 64))
    assert _tried(rows) == [
        [(128, 64), (2048, 64)], [(32, 64), (2048, 64)],
        [(128, 64), (128, 64)], [(32, 32), (32, 32)],
        [(2, 64), (2048, 64)], [(2, 64), (128, 64)], [(2, 32), (32, 32)],
    ]  # fmt: skip


def _tried(inputs: InputSet) -> list[list[tuple[int, ...]]]:
    """The shapes that each rule makes of inputs, in the order of the rules; none of a rule that changes nothing."""
    old = [row.shape for row in inputs.tree.tensors]
    return [rule.shapes(old) for rule in rules({}, inputs.tree) if says(rule, inputs.tree)]


def test_it_is_said_in_words() -> None:
    inputs = input_set(torch.zeros(300, 4), torch.zeros(300, 4), torch.zeros(300), 3, torch.zeros(()))
    said = says(Smaller(NONE_KEPT, 128, None), inputs.tree)
    assert said == ["172x4 instead of 300x4", "172 instead of 300"]
    assert says(Smaller(NONE_KEPT, 512, None), inputs.tree) == []


@given(SHAPES, st.frozensets(st.integers(0, 5000)), PERIODS, PERIODS)
def test_sizes_shrink_and_keep_their_remainder(
    shapes: list[tuple[int, ...]], kept: frozenset[int], period: int | None, leading: int | None
) -> None:
    smaller = Smaller(kept, period, leading).shapes(shapes)
    assert [len(shape) for shape in smaller] == [len(shape) for shape in shapes]
    for new, old in (
        (a, b) for one, other in zip(smaller, shapes, strict=True) for a, b in zip(one, other, strict=True)
    ):
        assert min(old, 2) <= new <= old
        assert new == old or (old - new) % min(filter(None, (period, leading))) == 0


@given(st.frozensets(st.integers(0, 5000)), PERIODS, PERIODS)
def test_a_message_holds_the_rule(kept: frozenset[int], period: int | None, leading: int | None) -> None:
    rule = Smaller(kept, period, leading)
    assert Smaller.from_json(json.loads(json.dumps(rule.to_json()))) == rule


@given(st.permutations(range(3)), st.integers(1, 40), st.integers(1, 300))
def test_values_are_the_first_ones_and_strides_keep_their_order(order: list[int], rows: int, columns: int) -> None:
    base = torch.arange(rows * columns * 2).view(rows, columns, 2)
    old = base.permute(order)
    [new] = values_of(made_smaller(Smaller(NONE_KEPT, 32, None), input_set(old)))
    assert torch.equal(new, old[tuple(slice(size) for size in new.shape)])
    by_stride = sorted(range(3), key=lambda dim: (-new.stride(dim), -new.shape[dim]))
    assert new.permute(by_stride).is_contiguous()
