"""The input families: what each does to inputs, and what leaves a declared domain."""

import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.correctness import task_check
from evaluator.referee.protocol import input_families
from evaluator.referee.protocol.smaller_shapes import Smaller
from evaluator.referee.protocol.tensors import encode
from evaluator.referee.runner import perturb, perturb_values

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
HOLDS = {
    "any": lambda x: torch.ones_like(x, dtype=torch.bool),
    "finite": torch.isfinite,
    "nonnegative": lambda x: x >= 0,
    "positive": lambda x: x > 0,
    "unit": lambda x: (x >= 0) & (x <= 1),
}


def one(family: str, value: torch.Tensor, seed: int = 0, *domains: str) -> torch.Tensor:
    [changed] = perturb.apply(family, [value], seed, domains)
    assert isinstance(changed, torch.Tensor)
    return changed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", input_families.FAMILIES)
def test_shape_and_dtype_stay_and_the_original_is_left_alone(family: str, dtype: torch.dtype) -> None:
    value = torch.randn(5, 1, 7, dtype=torch.float64).to(dtype)
    before = value.clone()
    changed = one(family, value)
    assert (changed.shape, changed.dtype) == (value.shape, value.dtype)
    assert torch.equal(value, before)
    # The tensor holds various numbers, negative ones among them, and no integers.
    same = family.startswith(
        (input_families.GENERATED, input_families.NEGATIVE, input_families.INTEGERS, input_families.VARIED)
    ) or (family == input_families.LOW_BITS and dtype in (torch.float16, torch.bfloat16))
    assert torch.equal(changed, value) == same


@given(
    seed=st.integers(0, 2**62), domain=st.sampled_from(sorted(HOLDS)), family=st.sampled_from(input_families.FAMILIES)
)
def test_no_family_leaves_the_declared_domain(seed: int, domain: str, family: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    value = torch.rand(64, generator=generator) * 0.999 + 1e-4
    if domain in ("any", "finite"):
        value = value - 0.5
    changed = one(family, value, seed, domain)
    assert bool(HOLDS[domain](changed).all()), family
    skipped = input_families.skipped(family, (domain,), ("float32", "int64"))
    assert bool(skipped) == (family in input_families.DOMAINS[domain])
    if skipped:
        assert torch.equal(changed, value)


def test_each_input_has_its_own_domain() -> None:
    first, second = perturb.apply(input_families.UP, [torch.ones(3), torch.ones(3)], 0, ("any", "unit"))
    assert first.tolist() == [16.0] * 3
    assert second.tolist() == [1.0] * 3
    assert input_families.skipped(input_families.UP, ("any", "unit"), ("float32",)) == ""
    assert "unit" in input_families.skipped(input_families.UP, ("unit", "unit"), ("float32",))


def test_what_says_nothing_is_skipped() -> None:
    assert input_families.skipped(input_families.FLIPPED, (), ("int64", "bool")) == "no floating-point input"
    assert input_families.skipped(input_families.LOW_BITS, (), ("bfloat16",)) == "no narrower type"
    for family in (input_families.GENERATED, input_families.OTHER_SEED, f"{input_families.GROUP}3"):
        assert input_families.skipped(family, ("fixed",), ()) == ""


def test_half_of_a_tensor_without_negative_numbers_is_negated_unless_it_is_a_mask() -> None:
    value = torch.rand(1000) + 0.1
    changed = one(input_families.NEGATIVE, value)
    assert torch.equal(changed.abs(), value)
    assert 300 < int((changed < 0).sum()) < 700
    assert input_families.may_turn_negative(value)
    for kept in ((value > 0.5).float(), torch.zeros(4), -value):
        assert not input_families.may_turn_negative(kept)
        assert torch.equal(one(input_families.NEGATIVE, kept), kept)


def test_along_each_dimension_half_of_the_slices_are_moved_far_down() -> None:
    value = torch.randn(6, 1, 9)
    changed = one(input_families.FAR, value)
    step = 32.0 * value.abs().max()
    up = (changed - 8.0 * value) > 0
    assert torch.allclose(changed, 8.0 * value + torch.where(up, step, -step))
    rows, columns = up.any(dim=2).flatten(), up.any(dim=0).flatten()
    assert (int(rows.sum()), int(columns.sum())) == (3, 5)
    assert torch.equal(up, (rows[:, None] & columns).view(6, 1, 9))


def test_what_holds_no_negative_number_is_moved_up_and_masks_and_single_numbers_stay() -> None:
    positive = torch.rand(5, 4)
    assert torch.equal(one(input_families.FAR, positive), 8.0 * positive + 32.0 * positive.max())
    for kept in ((positive > 0.5).float(), torch.tensor(-0.5), torch.tensor([[-0.5]])):
        assert torch.equal(one(input_families.FAR, kept), kept)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_would_leave_its_type_or_has_a_largest_number_far_beyond_the_others_is_not_moved(
    dtype: torch.dtype,
) -> None:
    value = torch.randn(64, 64, dtype=torch.float64).to(dtype)
    lowest, infinite = (
        torch.full((8, 8), number, dtype=dtype).triu(1) for number in (torch.finfo(dtype).min, -math.inf)
    )
    outlier = value.clone()
    outlier[3, 5] = 1000.0
    large = torch.full((8, 8), torch.finfo(dtype).max / 32, dtype=dtype) * value[:8, :8].sign()
    for kept in (lowest, infinite, outlier, large, torch.zeros(4, 4, dtype=dtype)):
        assert torch.equal(one(input_families.FAR, kept), kept)
    assert bool(one(input_families.FAR, value).isfinite().all())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_large_integers_do_not_fit_half_the_width_and_keep_their_signs(dtype: torch.dtype) -> None:
    kind = torch.iinfo(dtype)
    value = torch.randint(max(-20, kind.min), 20, (1000,)).to(dtype)
    changed = one(input_families.INTEGERS, value)
    assert torch.equal(changed < 0, value < 0)
    assert bool((changed.to(torch.int64).abs() >= 2 ** (kind.bits // 2)).all())
    assert input_families.skipped(input_families.INTEGERS, (), ("float32", str(dtype).removeprefix("torch."))) == ""


def test_integers_at_the_end_of_their_type_stay_in_it_and_masks_stay_masks() -> None:
    assert one(input_families.INTEGERS, torch.tensor([127, -128], dtype=torch.int8)).tolist() == [127, -128]
    mask = torch.tensor([0, 1, 1])
    assert torch.equal(one(input_families.INTEGERS, mask), mask)
    assert perturb.apply(input_families.INTEGERS, [mask > 0, torch.ones(3)], 0)[1].tolist() == [1.0, 1.0, 1.0]
    assert input_families.skipped(input_families.INTEGERS, (), ("float32", "bool")) == "no integer input"


def test_integers_and_positive_tensors_keep_what_they_are() -> None:
    index = torch.arange(5)
    assert perturb.apply(input_families.UP, [index], 0)[0] is index
    positive = torch.rand(64) + 0.1
    assert torch.equal(one(input_families.FLIPPED, positive), positive)
    assert not bool((one(input_families.TIES, positive) < 0).any())


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_low_bits_make_rounding_to_narrower_types_go_towards_zero(narrow: torch.dtype) -> None:
    value = one(input_families.LOW_BITS, torch.randn(4096))
    lost = (value.abs() - value.to(narrow).float().abs()) / value.abs()
    held = (value.view(torch.int32) & 0xFFFF) == 0  # by chance a number of bfloat16, so left as it is
    normal = (value.abs() > 1e-3) & ~held  # of float16
    assert bool((lost[normal] > 0).all())
    assert float(lost[normal].mean()) > (1e-3 if narrow is torch.bfloat16 else 2e-4)


def test_low_bits_leave_masks_and_codes_alone() -> None:
    codes = torch.tensor([0.0, 1.0, -1.0, 127.0, 0.5, math.inf, math.nan])
    assert torch.equal(one(input_families.LOW_BITS, codes).nan_to_num(7.0), codes.nan_to_num(7.0))


def test_ties_are_exact_and_many() -> None:
    values = one(input_families.TIES, torch.randn(64, 64, generator=torch.Generator().manual_seed(1)))
    assert len(values.unique()) < 24
    assert float(values.amax(-1, keepdim=True).eq(values).sum(-1).float().mean()) > 1.5
    assert bool((values == 0).any())


@pytest.mark.parametrize("seed", range(4))
def test_nan_and_infinities_do_not_meet(seed: int) -> None:
    value = one(input_families.NON_FINITE, torch.randn(4, 2048), seed)
    assert bool(value.isnan().any(-1).any())
    assert bool(value.isinf().any(-1).any())
    assert not bool((value.isnan().any(-1) & value.isinf().any(-1)).any())
    assert bool(one(input_families.NON_FINITE, torch.ones(1), seed).isnan().all())


def test_the_last_elements_stand_out_in_a_sum_over_any_dimension() -> None:
    value = one(input_families.ENDS, torch.ones(8, 9, 10))
    for dim in range(3):
        assert bool((value.select(dim, -1) > value.narrow(dim, 0, value.shape[dim] - 1).sum(dim)).all())


@pytest.mark.parametrize("shape", [(), (1,), (0,), (1, 1), (3, 0)])
@pytest.mark.parametrize("family", input_families.FAMILIES)
def test_small_and_empty_tensors_are_no_problem(family: str, shape: tuple[int, ...]) -> None:
    assert one(family, torch.randn(shape)).shape == shape


def test_an_expanded_input_may_be_changed() -> None:
    value = torch.randn(1, 8).expand(4, 8)
    assert torch.equal(one(input_families.FLIPPED, value), -value)


def test_shape_groups_are_counted_and_made() -> None:
    groups = [[torch.ones(1)], [torch.ones(2)]]
    module = SimpleNamespace(get_inputs=lambda: [torch.ones(3)], get_input_groups=lambda: groups)
    assert perturb.make(module, input_families.COUNT_GROUPS, 1, ()) == (2, True)
    assert perturb.make(module, f"{input_families.GROUP}1", 1, ()) == (groups[1], True)
    [value], changed = perturb.make(module, input_families.GENERATED, 1, ())
    assert value.shape == (3,) and changed


def test_a_shape_group_and_the_tasks_own_inputs_can_change_places() -> None:
    groups = [[torch.ones(1)], [torch.ones(2)]]
    module = SimpleNamespace(get_inputs=lambda: [torch.ones(3)], get_input_groups=lambda: groups)

    def size(family: str) -> int:
        [value], _ = perturb.make(module, family, 1, (), own_group=1)
        return value.numel()

    assert size(input_families.GENERATED) == 2
    assert [size(f"{input_families.GROUP}{number}") for number in range(2)] == [1, 3]
    assert perturb.make(module, input_families.COUNT_GROUPS, 1, (), own_group=1) == (2, True)
    with pytest.raises(IndexError, match=r"get_input_groups\(\) returns 2 lists of inputs: there is no shape group 5"):
        perturb.make(module, input_families.GENERATED, 1, (), own_group=5)


def test_an_unknown_family_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown 'upside down'"):
        perturb.apply("upside down", [torch.ones(2)], 0)


@given(seed=st.integers(0, 2**62), dtype=st.sampled_from([torch.float32, torch.int64, torch.int8, torch.bool]))
def test_shuffled_slices_keep_every_value_and_what_a_row_or_column_holds(seed: int, dtype: torch.dtype) -> None:
    value = torch.arange(12).reshape(3, 4).remainder(5).to(dtype)
    offsets = torch.arange(5).to(dtype)
    if dtype != torch.bool:
        assert torch.equal(one(input_families.SHUFFLED, offsets, seed), offsets)
        assert not torch.equal(one(input_families.SHUFFLED, offsets[:2].flip(0), seed), offsets[:2].flip(0))
        assert sorted(one(input_families.SHUFFLED, offsets.flip(0), seed).tolist()) == offsets.tolist()
    changed = one(input_families.SHUFFLED, value, seed)
    assert changed.flatten().sort().values.tolist() == value.flatten().sort().values.tolist()
    assert sorted(changed.sum(0).tolist()) == sorted(value.sum(0).tolist())
    assert sorted(changed.sum(1).tolist()) == sorted(value.sum(1).tolist())


def test_slices_are_put_in_another_order_where_that_changes_anything() -> None:
    value = torch.arange(9).flip(0)[:, None].expand(9, 50)
    for seed in range(8):
        assert not torch.equal(one(input_families.SHUFFLED, value, seed), value)
        assert torch.equal(one(input_families.SHUFFLED, torch.ones(5, 6), seed), torch.ones(5, 6))
    assert input_families.skipped(input_families.SHUFFLED, (), ()) == "no tensor input"
    assert input_families.skipped(input_families.SHUFFLED, (), ("bool",)) == ""
    permuted = torch.randn(2, 3, 4).permute(2, 0, 1)
    assert one(input_families.SHUFFLED, permuted).stride() == permuted.stride()


@given(seed=st.integers(0, 2**62))
def test_some_of_several_inputs_are_changed_at_least_one_and_none_out_of_its_domain(seed: int) -> None:
    values = [torch.ones(3), torch.ones(3), torch.ones(3), 7]
    changed = perturb.apply(input_families.UP, values, seed, ("any", "any", "unit"), some=True)
    factors = [float(value[0]) for value in changed[:3]]
    assert factors[2] == 1.0 and changed[3] == 7
    assert factors[:2] in ([16.0, 1.0], [1.0, 16.0], [16.0, 16.0])
    assert perturb.apply(input_families.UP, values[:1], seed, some=True)[0][0] == 16.0


@pytest.mark.parametrize("seed", range(8))
def test_what_a_family_changes_lies_in_inputs_that_are_made_smaller(seed: int) -> None:
    module = SimpleNamespace(
        get_inputs=lambda: [torch.rand(64, 8), (torch.rand(64), 3)], get_input_groups=lambda: [[torch.rand(64, 8)]]
    )
    rule = Smaller(frozenset(), None, 2)
    (matrix, (row, number)), changed = perturb.make(module, input_families.NON_FINITE, seed, (), smaller=rule)
    assert (matrix.shape, row.shape, number, changed) == ((2, 8), (2,), 3, True)
    assert 1 <= int(matrix.isnan().sum()) <= 2 and 1 <= int(matrix.isinf().sum()) <= 4
    [group], _ = perturb.make(module, f"{input_families.GROUP}0", seed, (), smaller=rule)
    assert group.shape == (2, 8)


def test_integers_can_be_changed_alike_whatever_they_are_and_nothing_else_is() -> None:
    module = SimpleNamespace(get_inputs=lambda: [torch.randint(0, 9, (50,)) * 0 + torch.arange(50).flip(0)])
    same = [perturb.make(module, input_families.SHUFFLED, seed, (), change_seed=5)[0] for seed in (1, 2)]
    assert torch.equal(same[0][0], same[1][0])
    other = [perturb.make(module, input_families.SHUFFLED, seed, ())[0] for seed in (1, 2)]
    assert not torch.equal(other[0][0], other[1][0])
    module = SimpleNamespace(get_inputs=lambda: [torch.ones(999, dtype=torch.int64), torch.ones(999)])
    first, second = (perturb.make(module, input_families.SPARSE, seed, (), change_seed=5)[0] for seed in (1, 2))
    assert torch.equal(first[0], second[0]) and not torch.equal(first[1], second[1])
    assert input_families.may_end_a_process(input_families.SHUFFLED, ("float32", "int64"))
    assert input_families.may_end_a_process(input_families.VARIED, ("float32", "int64"))
    assert input_families.may_end_a_process(input_families.SPARSE, ("float32", "int64"))
    assert not input_families.may_end_a_process(input_families.OUTLIER, ("float32", "int64"))
    assert not input_families.may_end_a_process(input_families.SHUFFLED, ("float32", "bool"))
    assert not input_families.may_end_a_process(input_families.UP, ("int64",))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool, torch.int64, torch.int8, torch.uint8])
@pytest.mark.parametrize("number", [0, 1])
def test_an_eighth_of_a_mask_that_is_the_same_everywhere_is_flipped(dtype: torch.dtype, number: int) -> None:
    mask = torch.full((40, 50), number).to(dtype)
    changed = one(input_families.VARIED, mask)
    assert changed.dtype == dtype and input_families.is_mask(changed)
    assert 0.05 < float((changed != mask).float().mean()) < 0.25
    for seed in range(20):
        assert not torch.equal(one(input_families.VARIED, mask[0, :2], seed), mask[0, :2])
    assert torch.equal(one(input_families.VARIED, mask[:1, :1]), mask[:1, :1])
    some = torch.tensor([1, 0, 1]).to(dtype)
    assert torch.equal(one(input_families.VARIED, some), some)


@given(seed=st.integers(0, 2**62), length=st.integers(2, 120), count=st.integers(1, 20))
def test_full_lengths_become_any_that_fit(seed: int, length: int, count: int) -> None:
    for dtype in (torch.int64, torch.int32, torch.uint8):
        value = torch.full((count,), length, dtype=dtype)
        changed = one(input_families.VARIED, value, seed)
        assert changed.dtype == dtype and 1 <= int(changed.min()) < length >= int(changed.max())
        assert torch.equal(one(input_families.VARIED, value, seed, "bounded"), changed)
    for kept in (torch.tensor(length), -value.long(), torch.full((3,), length) + torch.arange(3).flip(0)):
        assert torch.equal(one(input_families.VARIED, kept, seed), kept)
    largest = torch.full((3,), torch.iinfo(torch.int64).max)
    assert bool((one(input_families.VARIED, largest, seed) > 0).all())


@given(
    seed=st.integers(0, 2**62),
    row=st.lists(st.integers(-40, 80), min_size=3, max_size=20).map(sorted),
    count=st.integers(0, 3),
)
def test_integers_in_order_become_others_in_order_between_the_same_ends(seed: int, row: list[int], count: int) -> None:
    value = torch.tensor(row, dtype=torch.int8)
    if count:
        value = value.expand(count, len(row))
    if row[0] == row[-1]:
        return
    changed = one(input_families.VARIED, value, seed)
    assert changed.dtype == value.dtype and torch.equal(changed, perturb_values.in_order(changed))
    assert bool((changed[..., 0] == row[0]).all()) and bool((changed[..., -1] == row[-1]).all())
    if row[-1] - row[0] >= len(row):
        assert bool((changed[..., 1:] > changed[..., :-1]).all())


def test_an_index_that_counts_up_becomes_another() -> None:
    for value in (torch.arange(1024), torch.arange(5, 70).expand(3, 65), torch.arange(0, 512, 8, dtype=torch.int32)):
        for seed in range(5):
            changed = one(input_families.VARIED, value, seed)
            assert float((changed == value).float().mean()) < 0.7
            assert (changed.shape, changed.min(), changed.max()) == (value.shape, value.min(), value.max())
    ends = torch.tensor([-(2**63), 0, 5, 2**63 - 1])
    assert torch.equal(one(input_families.VARIED, ends)[[0, 3]], ends[[0, 3]])


@pytest.mark.parametrize("number", [2.5, -3.0, 1e-3])
def test_an_eighth_of_a_tensor_of_one_number_is_halved(number: float) -> None:
    value = torch.full((40, 50), number)
    changed = one(input_families.VARIED, value)
    assert 0.05 < float((changed != value).float().mean()) < 0.25
    assert torch.equal(changed[changed != value].unique(), torch.tensor([number / 2]))
    for kept in (value[:1, :1], torch.full((9,), math.inf), torch.full((9,), math.nan), torch.randn(9), value[:0]):
        assert torch.equal(one(input_families.VARIED, kept).nan_to_num(7.0), kept.nan_to_num(7.0))


@given(
    seed=st.integers(0, 2**62),
    domain=st.sampled_from(sorted(HOLDS)),
    number=st.sampled_from([0.0, 0.25, 1.0, 3.0, -1.0]),
)
def test_what_is_the_same_everywhere_stays_in_its_domain(seed: int, domain: str, number: float) -> None:
    value = torch.full((64,), number)
    if bool(HOLDS[domain](value).all()):
        changed = one(input_families.VARIED, value, seed, domain)
        assert bool(HOLDS[domain](changed).all()) and not torch.equal(changed, value)
    ones = torch.ones(64, dtype=torch.int64)
    assert torch.equal(one(input_families.VARIED, ones, seed, domain), ones) == (domain == "positive")


ALL_TYPES = [*DTYPES, torch.bool, torch.int64, torch.int32, torch.int8, torch.uint8]


@given(
    seed=st.integers(0, 2**62),
    dtype=st.sampled_from(ALL_TYPES),
    shape=st.sampled_from([(2,), (100,), (3, 5), (40, 50), (4, 1, 300)]),
    ones=st.sampled_from([0.0, 0.3, 0.99, 1.0]),
)
def test_under_a_hundredth_of_a_mask_is_flipped_one_element_at_least(
    seed: int, dtype: torch.dtype, shape: tuple[int, ...], ones: float
) -> None:
    mask = (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < ones).to(dtype)
    changed = one(input_families.SPARSE, mask, seed)
    assert (changed.dtype, changed.stride()) == (mask.dtype, mask.stride())
    assert input_families.is_mask(changed)
    assert 1 <= int((changed != mask).sum()) <= max(1, mask.numel() // perturb_values.FEW)
    assert torch.equal(one(input_families.SPARSE, mask, seed), changed), "it can be had again"


def test_a_sample_of_a_mask_does_not_show_what_is_changed_and_no_place_is_like_another() -> None:
    mask, sample = torch.ones(512, 512), torch.randperm(1 << 18)[:64]
    changed = [one(input_families.SPARSE, mask, seed) for seed in range(100)]
    assert sum(bool((found.view(-1)[sample] == 1).all()) for found in changed) > 85
    assert len({int((found.view(-1) == 0).int().argmax()) for found in changed}) > 90
    assert sum(int((found == 0).sum()) < 64 for found in changed) > 25, "often few are changed"


@given(
    seed=st.integers(0, 2**62),
    dtype=st.sampled_from(ALL_TYPES),
    shape=st.sampled_from([(2,), (50,), (4, 30), (5, 1, 30)]),
)
def test_a_few_other_values_change_places_so_that_each_stays_one_that_was_there(
    seed: int, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    value = (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 100 + 2).to(dtype)
    value.view(-1)[0], value.view(-1)[1] = 101, 1  # not in order
    changed = one(input_families.SPARSE, value, seed)
    assert (changed.dtype, changed.stride()) == (value.dtype, value.stride())
    if dtype is torch.bool:
        assert not torch.equal(changed, value)
        return
    assert sorted(changed.flatten().tolist()) == sorted(value.flatten().tolist())
    different = changed != value
    assert bool(different.any())
    in_two_slices = [
        int(different.movedim(dim, 0).flatten(1).any(1).sum()) <= 2 for dim in range(value.dim()) if value.dim() > 1
    ]
    assert int(different.sum()) == 2 or any(in_two_slices)


@given(
    seed=st.integers(0, 2**62),
    row=st.lists(st.integers(-40, 80), min_size=3, max_size=20).map(sorted),
    dtype=st.sampled_from([torch.int8, torch.int64, torch.float32, torch.float16]),
)
def test_in_a_row_in_order_one_element_moves_between_its_neighbours(
    seed: int, row: list[int], dtype: torch.dtype
) -> None:
    value = torch.tensor([row, row]).to(dtype)
    if row[0] == row[-1]:
        return
    changed = one(input_families.SPARSE, value, seed)
    assert torch.equal(changed, perturb_values.in_order(changed))
    movable = any(high > low for low, high in zip(row, row[2:], strict=False))
    assert int((changed != value).sum()) == movable
    assert torch.equal(changed[:, [0, -1]], value[:, [0, -1]])
    if not dtype.is_floating_point and all(high - low > 2 for low, high in itertools.pairwise(row)):
        assert bool((changed[:, 1:] > changed[:, :-1]).all())


@given(
    seed=st.integers(0, 2**62),
    domain=st.sampled_from(sorted(HOLDS)),
    number=st.sampled_from([0.0, 0.25, 1.0, 3.0, -1.0]),
)
def test_a_few_elements_of_one_number_become_another_inside_the_domain(seed: int, domain: str, number: float) -> None:
    value = torch.full((20, 64), number)
    if bool(HOLDS[domain](value).all()):
        changed = one(input_families.SPARSE, value, seed, domain)
        assert bool(HOLDS[domain](changed).all())
        assert 1 <= int((changed != value).sum()) <= value.numel() // perturb_values.FEW
    lengths = torch.full((300,), 77)
    changed = one(input_families.SPARSE, lengths, seed, domain)
    assert 1 <= int((changed != lengths).sum()) <= 2 and 1 <= int(changed.min()) < 77
    for kept in (torch.full((9,), math.inf), torch.tensor([3.0]), -lengths, torch.ones(9, dtype=torch.complex64)):
        assert torch.equal(one(input_families.SPARSE, kept, seed), kept)


@given(seed=st.integers(0, 2**62), dtype=st.sampled_from(DTYPES), signed=st.booleans())
def test_one_element_stands_out_and_its_place_is_any(seed: int, dtype: torch.dtype, signed: bool) -> None:
    value = torch.rand(8, 9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype) + 0.1
    if signed:
        value = -value
    changed = one(input_families.OUTLIER, value, seed)
    [place] = (changed != value).nonzero().tolist()
    found = float(changed[tuple(place)])
    factor = 4 if dtype == torch.float16 else 128
    assert found == pytest.approx(factor * float(value.abs().max()) * (-1 if signed else 1))
    mask = (value.abs() > 0.5).to(dtype)
    for kept in (mask, torch.full((3,), torch.finfo(dtype).max, dtype=dtype), torch.zeros(4, dtype=dtype)):
        assert torch.equal(one(input_families.OUTLIER, kept, seed), kept)


@given(seed=st.integers(0, 2**62), dtype=st.sampled_from(DTYPES), signed=st.booleans())
@pytest.mark.parametrize(("family", "dim"), [(input_families.ROWS, 0), (input_families.COLUMNS, 2)])
def test_some_slices_are_zero_and_as_many_negative_where_there_are_negatives(
    family: str, dim: int, seed: int, dtype: torch.dtype, signed: bool
) -> None:
    value = torch.rand(24, 2, 24, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype) + 0.1
    value = torch.where(torch.arange(24) % 2 == 0, value, -value) if signed else value
    changed = one(family, value, seed)
    slices, before = changed.movedim(dim, 0).flatten(1), value.movedim(dim, 0).flatten(1)
    zero, kept = (slices == 0).all(1), (slices == before).all(1)
    assert int(zero.sum()) == 3
    others = ~zero & ~kept
    assert bool(others.any()) <= signed
    assert torch.equal(slices[others], -before[others].abs())
    if dim == 0 and signed:
        assert int(others.sum()) == 3
    mask = (value.abs() > 0.5).to(dtype)
    for same in (mask, torch.tensor(3.0, dtype=dtype), torch.full((5,), 2.0, dtype=dtype)):
        assert torch.equal(one(family, same, seed), same)


def test_python_floats_are_halved_and_nothing_else_of_python() -> None:
    values: list[Any] = [0.5, 1, True, "mode", None, torch.float32, 0.0, math.inf, -3.0]
    for family in input_families.FAMILIES:
        changed = perturb.apply(family, values, 0)
        assert changed == ([0.25, *values[1:-1], -1.5] if family == input_families.VARIED else values)
    assert perturb.apply(input_families.VARIED, [0.5, 0.5], 0, ("fixed", "any")) == [0.5, 0.25]
    assert input_families.skipped(input_families.VARIED, (), ()) == ""


def test_what_lies_in_lists_tuples_and_dicts_is_changed_as_well() -> None:
    x = torch.ones(9)
    values = [[x, (x, 2.0)], {"a": x, "b": [x, "mode"]}, (), x]
    changed = perturb.apply(input_families.UP, values, 0, ("any", "any", "any", "unit"))
    assert encode(changed)[0].spec == encode(values)[0].spec
    tensors = encode(changed)[1]
    assert [float(tensor[0]) for tensor in tensors] == [16.0, 16.0, 16.0, 16.0, 1.0]
    changed = perturb.apply(input_families.UP, values, 0, ("any", "unit", "any", "unit"))
    assert [float(tensor[0]) for tensor in encode(changed)[1]] == [16.0, 16.0, 1.0, 1.0, 1.0]
    assert perturb.apply(input_families.VARIED, values, 0)[0][1][1] == 1.0
    assert float(x.sum()) == 9.0


@given(seed=st.integers(0, 2**62))
def test_some_of_what_lies_in_a_list_is_changed_and_only_what_can_be_is_chosen(seed: int) -> None:
    values = [[torch.ones(64), torch.randn(64), 2.0], torch.randn(64)]
    changed = perturb.apply(input_families.VARIED, values, seed, some=True)
    flags = (not torch.equal(changed[0][0], values[0][0]), changed[0][2] == 1.0)
    assert any(flags)
    assert torch.equal(changed[0][1], values[0][1]) and torch.equal(changed[1], values[1])
    again = perturb.apply(input_families.VARIED, values, seed, some=True)
    assert torch.equal(again[0][0], changed[0][0]) and again[0][2] == changed[0][2]


def test_whether_a_family_changes_anything_is_told() -> None:
    def changes(family: str, *values: Any) -> bool:
        found, changed = perturb.make(SimpleNamespace(get_inputs=lambda: values), family, 3, ())
        assert isinstance(found, list) and isinstance(changed, bool)
        return changed

    positive = torch.rand(50) + 0.1
    assert not changes(input_families.FLIPPED, positive) and changes(input_families.FLIPPED, positive, [-positive])
    assert not changes(input_families.SHUFFLED, torch.arange(9), torch.zeros(9), 1.0)
    assert not changes(input_families.VARIED, positive, torch.randint(0, 9, (50,)), 3, True)
    assert changes(input_families.VARIED, positive, 3.0)
    assert not changes(input_families.INTEGERS, torch.tensor([0, 1]), positive)
    assert not changes(input_families.NEGATIVE, -positive) and changes(input_families.NEGATIVE, positive)
    assert not changes(input_families.UP, torch.zeros(5)) and changes(input_families.UP, positive)
    assert changes(input_families.GENERATED) and changes(input_families.OTHER_SEED)


@given(
    seed=st.integers(0, 2**62), family=st.sampled_from(input_families.FAMILIES), shape=st.sampled_from([(31,), (6, 31)])
)
def test_rows_in_order_stay_in_order(seed: int, family: str, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(seed)
    for value in (
        torch.randn(shape, generator=generator),
        torch.rand(shape, generator=generator) + 0.1,
        torch.randn(shape, generator=generator).half(),
        torch.randint(-99, 99, shape, generator=generator),
    ):
        ordered = perturb_values.in_order(value)
        assert perturb_values.ascends(ordered)
        changed = one(family, ordered, seed)
        assert torch.equal(changed, perturb_values.in_order(changed)), family
        if family == input_families.SHUFFLED:
            assert torch.equal(changed, ordered) == (len(shape) == 1)
            assert sorted(changed.flatten().tolist()) == sorted(ordered.flatten().tolist())


def test_a_flipped_row_in_order_is_reversed() -> None:
    boundaries = torch.tensor([[-1.0, 0.5, 2.0], [0.0, 1.0, 2.0]])
    assert one(input_families.FLIPPED, boundaries).tolist() == [[-2.0, -0.5, 1.0], [-2.0, -1.0, 0.0]]


def test_what_is_in_order() -> None:
    for rows in ([1, 1, 2], [[1, 2, 3], [4, 4, 4]], [1, 2], [[[0.0, 1.0, math.inf]]]):
        assert perturb_values.ascends(torch.tensor(rows))
    for rows in ([1, 1, 1], [2, 1], [[1, 2], [1, 2]], [[1, 2, 3], [3, 2, 1]], [[1], [2]], [1], 1, [], [[], []]):
        assert not perturb_values.ascends(torch.tensor(rows))
    assert not perturb_values.ascends(torch.tensor([0.0, math.nan, 1.0]))
    assert not perturb_values.ascends(torch.tensor([False, False, True]))


def test_changed_tensors_keep_their_strides() -> None:
    value = torch.ones(4, 3, 5).permute(2, 0, 1)
    steps = torch.arange(0, 60, 2).reshape(10, 3).t().contiguous().t()
    assert one(input_families.VARIED, value).stride() == value.stride()
    assert one(input_families.VARIED, steps).stride() == steps.stride()
    assert one(input_families.FLIPPED, -torch.arange(60.0).flip(0).reshape(10, 6).t().contiguous().t()).stride() == (
        1,
        10,
    )


def test_python_booleans_among_the_inputs_are_named() -> None:
    spec = encode([torch.ones(1), True, 1, 2.0, {"causal": (False,)}])[0].spec
    assert task_check._modes(spec) == ["the Python bool True", "the Python bool False"]
