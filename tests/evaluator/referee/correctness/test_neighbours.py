"""The inputs beside a task's own that a candidate is tried on."""

import time

import pytest
import torch

from evaluator.referee.correctness.neighbours import (
    ALIGNMENT,
    MODE,
    NEGATIVE,
    SHAPE,
    STRIDE,
    Misaligned,
    Neighbour,
    Neighbours,
    Variable,
    neighbours,
    try_each,
    variable,
)
from evaluator.referee.isolation.calls import InputSet
from evaluator.referee.platforms.cpu.input_buffer import SharedInputBuffer
from evaluator.referee.protocol.tensors import TensorRow, Tree, bytes_needed
from tests.support.input_sets import input_set, values_of


def of(respect: str, inputs: InputSet) -> list[Neighbour]:
    return [found for found in neighbours(inputs) if found.respect == respect]


def shapes(neighbour: Neighbour) -> list[list[tuple[int, ...]]]:
    return [[tuple(value.shape) for value in values_of(way())] for way in neighbour.ways]


def by_one(inputs: InputSet) -> list[Neighbour]:
    """The other sizes that are tried in any case."""
    return [one for one in of(SHAPE, inputs) if not one.unless_taken]


def test_first_and_last_size_become_one_smaller_and_one_larger() -> None:
    found = by_one(input_set(torch.rand(8, 16), 3))
    assert [one.name for one in found] == [
        "first size 7 instead of 8",
        "first size 9 instead of 8",
        "last size 15 instead of 16",
        "last size 17 instead of 16",
    ]
    assert [shapes(one) for one in found] == [[[(7, 16)]], [[(9, 16)]], [[(8, 15)]], [[(8, 17)]]]


def test_sizes_between_the_first_and_the_last_become_one_larger() -> None:
    found = by_one(input_set(torch.rand(7, 8), torch.rand(2, 3, 4, 5), torch.rand(9, 3, 6)))
    assert [one.name for one in found][4:] == [
        "size 4 instead of 3 of dimension 1",
        "size 5 instead of 4 of dimension 2",
        "size 3 instead of 2 of dimension 0 of input tensor 1",
        "size 6 instead of 5 of dimension 3 of input tensor 1",
        "size 10 instead of 9 of dimension 0 of input tensor 2",
        "size 7 instead of 6 of dimension 2 of input tensor 2",
    ]
    assert [shapes(one)[0] for one in found[4:]] == [
        [(7, 8), (2, 4, 4, 5), (9, 4, 6)],
        [(7, 8), (2, 3, 5, 5), (9, 3, 6)],
        [(7, 8), (3, 3, 4, 5), (9, 3, 6)],
        [(7, 8), (2, 3, 4, 6), (9, 3, 6)],
        [(7, 8), (2, 3, 4, 5), (10, 3, 6)],
        [(7, 8), (2, 3, 4, 5), (9, 3, 7)],
    ]


def test_the_columns_of_a_second_factor_change_though_they_are_no_size_of_the_first() -> None:
    found = by_one(input_set(torch.rand(64, 32), torch.rand(32, 48)))
    assert found[-1].name == "size 49 instead of 48 of dimension 1 of input tensor 1"
    assert shapes(found[-1]) == [[(64, 32), (32, 49)]]


def test_where_sizes_that_differ_by_one_are_refused_twice_and_half_of_it_are_tried() -> None:
    each = neighbours(input_set(torch.rand(8, 16)))

    def even_alone(neighbour: Neighbour) -> tuple[str, str]:
        sizes = shapes(neighbour)[0][0]
        return ("right", "") if all(size % 2 == 0 for size in sizes) else ("skipped", "")

    tried = {check["inputs"]: check["result"] for check in try_each(each, even_alone) if check["respect"] == SHAPE}
    assert tried == {
        "first size 7 instead of 8": "skipped",
        "first size 9 instead of 8": "skipped",
        "first size 16 instead of 8": "right",
        "last size 15 instead of 16": "skipped",
        "last size 17 instead of 16": "skipped",
        "last size 32 instead of 16": "right",
    }


def test_tensors_with_the_same_size_at_that_place_change_together_or_one_alone_or_wherever_it_stands() -> None:
    found = by_one(input_set(torch.rand(8, 8), torch.rand(8, 4)))
    assert shapes(found[0]) == [[(7, 8), (7, 4)], [(7, 8), (8, 4)], [(7, 7), (7, 4)]]
    assert shapes(found[2]) == [[(8, 7), (8, 4)], [(7, 7), (7, 4)]]


def test_what_is_left_keeps_its_values_and_what_is_added_repeats_the_last_row() -> None:
    x = torch.rand(4, 3)
    smaller, larger = (values_of(one.ways[0]())[0] for one in of(SHAPE, input_set(x))[:2])
    assert torch.equal(smaller, x[:3])
    assert torch.equal(larger, torch.cat([x, x[3:]]))
    twice = values_of(of(SHAPE, input_set(x))[2].ways[0]())[0]
    assert torch.equal(twice, x.repeat_interleave(2, 0))


def test_integers_and_offsets_stay_in_range_and_in_order() -> None:
    offsets = torch.tensor([0, 3, 5, 9])
    larger = values_of(of(SHAPE, input_set(offsets))[1].ways[0]())[0]
    assert larger.tolist() == [0, 3, 5, 9, 9]


def test_other_strides_hold_the_same_values() -> None:
    x, bias = torch.rand(4, 6), torch.rand(6)
    each = of(STRIDE, input_set(x, bias))
    found = [values_of(one.ways[0]()) for one in each]
    strides = [[value.stride() for value in values] for values in found]
    assert dict(zip([one.name for one in each], strides, strict=True)) == {
        "every other element of larger tensors": [(12, 2), (2,)],
        "every other element of larger tensors, input tensor 0 alone": [(12, 2), (1,)],
        "every other element of larger tensors, input tensor 1 alone": [(6, 1), (2,)],
        "rows of wider tensors": [(12, 1), (1,)],
        "first and last dimension swapped in memory": [(1, 4), (1,)],
    }
    assert all(torch.equal(values[0], x) and torch.equal(values[1], bias) for values in found)


def test_a_tensor_that_is_expanded_stays_so_where_others_change() -> None:
    bias = torch.rand(1, 8).expand(4, 8)
    for one in neighbours(input_set(torch.rand(4, 8), torch.arange(4), bias)):
        for way in one.ways:
            values = values_of(way())
            if values[2].shape == bias.shape and "tensor 2" not in one.name and one.respect != STRIDE:
                assert values[2].stride() in ((0, 1), (8, 1))
                assert torch.equal(values[2], bias)


@pytest.mark.parametrize("inputs", [(), (3,), (torch.rand(()),), (torch.rand(0, 4),)])
def test_inputs_that_cannot_be_changed_have_no_such_neighbours(inputs: tuple[object, ...]) -> None:
    assert [one for one in neighbours(input_set(*inputs)) if one.respect == SHAPE and "first" in one.name] == []


def test_misaligned_inputs_lie_behind_an_aligned_address_with_their_values() -> None:
    inputs = input_set(torch.rand(5), torch.arange(3))
    [neighbour] = of(ALIGNMENT, inputs)
    assert neighbour.skew_bytes == 8
    buffer = Misaligned(SharedInputBuffer(bytes_needed(inputs.tree) + neighbour.skew_bytes, 1), neighbour.skew_bytes)
    placed = buffer.put(inputs.tree, inputs.contents)
    assert [row.place % 64 for row in placed.tensors] == [8, 8]
    for row, content in zip(placed.tensors, inputs.contents, strict=True):
        assert buffer.unchanged(row, content)
        assert torch.equal(buffer.copy(row), content)
    buffer.fill(placed, [content + 1 for content in inputs.contents])
    assert not buffer.unchanged(placed.tensors[0], inputs.contents[0])
    buffer.close()


def test_a_tree_keeps_its_nesting_and_scalars() -> None:
    tree = Tree({"list": [{"tensor": 0}, {"scalar": 2}]}, (TensorRow(0, "float32", (2,), (1,)),))
    inputs = InputSet(tree, [torch.zeros(8, dtype=torch.uint8)], seed=1)
    assert all(way().tree.spec == tree.spec for one in neighbours(inputs) for way in one.ways)


@pytest.mark.parametrize(
    ("result", "guarded"), [("right", False), ("skipped", False), ("wrong", True), ("fails", True), ("untried", True)]
)
def test_what_is_not_known_to_be_right_is_guarded(result: str, guarded: bool) -> None:
    right = {"respect": SHAPE, "inputs": "a", "result": "right", "note": ""}
    found = Neighbours([], {}, [right, {**right, "inputs": "b", "result": result}, {**right, "respect": STRIDE}])
    assert found.guards == ([SHAPE] if guarded else [])


def test_what_there_was_no_time_for_counts_as_untried() -> None:
    each = neighbours(input_set(torch.rand(8, 16)))
    tried: list[Neighbour] = []

    def result_of(neighbour: Neighbour) -> tuple[str, str]:
        tried.append(neighbour)
        time.sleep(0.3)
        return "right", ""

    checks = try_each(each, result_of, budget_s=0.2)
    assert tried == [each[0]]
    left = [one for one in each[1:] if not one.unless_taken]
    assert [(check["result"], check["note"]) for check in checks[1:]] == [("untried", "no time was left")] * len(left)
    assert Neighbours([], {}, checks).guards == [SHAPE, STRIDE, ALIGNMENT, MODE]


def test_a_few_labels_are_negative_in_all_tensors_of_labels_and_in_each_alone() -> None:
    labels, few, mask = torch.arange(20), torch.tensor([3, 1, 2]), torch.tensor([0, 1, 1])
    found = of(NEGATIVE, input_set(torch.rand(20, 8), labels, mask, few))
    assert [one.name for one in found] == ["a few integers -100", "a few integers -1"]
    tried = [[(value == -100).nonzero().flatten().tolist() for value in values_of(way())] for way in found[0].ways]
    assert tried == [[[], [0, 10, 19], [], [1]], [[], [0, 10, 19], [], []], [[], [], [], [1]]]


@pytest.mark.parametrize("value", [torch.tensor([2, -1, 3]), torch.tensor([1, 0]), torch.rand(4), torch.tensor(3)])
def test_what_holds_negative_integers_or_none_at_all_is_left_alone(value: torch.Tensor) -> None:
    assert of(NEGATIVE, input_set(value)) == []


def test_integers_whose_bounds_are_declared_stay_within_them() -> None:
    inputs = input_set(torch.rand(4, 8), torch.arange(4))
    assert not [one for one in neighbours(inputs, ["any", "bounded"]) if one.respect == NEGATIVE]


def test_what_may_vary_is_what_was_right_by_the_way_that_the_reference_took() -> None:
    inputs = input_set(torch.rand(8, 16), 3, torch.rand(8, 4))
    each = neighbours(inputs)
    results = {
        "first size 7 instead of 8": (0, "right"),
        "first size 9 instead of 8": (0, "right"),
        "last size 15 instead of 16": (0, "right"),
        "last size 17 instead of 16": (0, "wrong"),
        "size 5 instead of 4 of dimension 1 of input tensor 1": (0, "skipped"),
    }
    checks = [{"respect": SHAPE, "inputs": name, "result": result, "note": ""} for name, (_, result) in results.items()]
    taken = {name: way for name, (way, _) in results.items()}
    assert variable(inputs.tree, each, checks, taken) == [Variable([[0, 0], [2, 0]], 1)], "the number is a leaf, too"
    alone = variable(inputs.tree, each, checks[:1], {"first size 7 instead of 8": 1})
    assert alone == [Variable([[0, 0]], 1)]


def test_a_size_of_which_only_twice_was_tried_varies_by_multiples() -> None:
    inputs = input_set(torch.rand(8, 16))
    check = {"respect": SHAPE, "inputs": "last size 32 instead of 16", "result": "right", "note": ""}
    found = variable(inputs.tree, neighbours(inputs), [check], {check["inputs"]: 0})
    assert found == [Variable([[0, 1]], 16)]


def test_a_size_of_one_becomes_two() -> None:
    found = by_one(input_set(torch.rand(1, 8)))
    assert [one.name for one in found] == [
        "first size 2 instead of 1",
        "last size 7 instead of 8",
        "last size 9 instead of 8",
    ]
