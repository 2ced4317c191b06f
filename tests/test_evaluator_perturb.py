"""The input families: what each does to inputs, and what leaves a declared domain."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee import perturb

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
@pytest.mark.parametrize("family", perturb.FAMILIES)
def test_shape_and_dtype_stay_and_the_original_is_left_alone(family: str, dtype: torch.dtype) -> None:
    value = torch.randn(5, 1, 7, dtype=torch.float64).to(dtype)
    before = value.clone()
    changed = one(family, value)
    assert (changed.shape, changed.dtype) == (value.shape, value.dtype)
    assert torch.equal(value, before)
    # The tensor holds negative numbers, and no integers.
    same = family.startswith((perturb.GENERATED, perturb.NEGATIVE, perturb.INTEGERS)) or (
        family == perturb.LOW_BITS and dtype in (torch.float16, torch.bfloat16)
    )
    assert torch.equal(changed, value) == same


@given(seed=st.integers(0, 2**62), domain=st.sampled_from(sorted(HOLDS)), family=st.sampled_from(perturb.FAMILIES))
def test_no_family_leaves_the_declared_domain(seed: int, domain: str, family: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    value = torch.rand(64, generator=generator) * 0.999 + 1e-4
    if domain in ("any", "finite"):
        value = value - 0.5
    changed = one(family, value, seed, domain)
    assert bool(HOLDS[domain](changed).all()), family
    skipped = perturb.skipped(family, (domain,), ("float32", "int64"))
    assert bool(skipped) == (family in perturb.DOMAINS[domain])
    if skipped:
        assert torch.equal(changed, value)


def test_each_input_has_its_own_domain() -> None:
    first, second = perturb.apply(perturb.UP, [torch.ones(3), torch.ones(3)], 0, ("any", "unit"))
    assert first.tolist() == [16.0] * 3
    assert second.tolist() == [1.0] * 3
    assert perturb.skipped(perturb.UP, ("any", "unit"), ("float32",)) == ""
    assert "unit" in perturb.skipped(perturb.UP, ("unit", "unit"), ("float32",))


def test_what_says_nothing_is_skipped() -> None:
    assert perturb.skipped(perturb.FLIPPED, (), ("int64", "bool")) == "no floating-point input"
    assert perturb.skipped(perturb.LOW_BITS, (), ("bfloat16",)) == "no narrower type"
    for family in (perturb.GENERATED, perturb.OTHER_SEED, f"{perturb.GROUP}3"):
        assert perturb.skipped(family, ("fixed",), ()) == ""


def test_half_of_a_tensor_without_negative_numbers_is_negated_unless_it_is_a_mask() -> None:
    value = torch.rand(1000) + 0.1
    changed = one(perturb.NEGATIVE, value)
    assert torch.equal(changed.abs(), value)
    assert 300 < int((changed < 0).sum()) < 700
    assert perturb.may_turn_negative(value)
    for kept in ((value > 0.5).float(), torch.zeros(4), -value):
        assert not perturb.may_turn_negative(kept)
        assert torch.equal(one(perturb.NEGATIVE, kept), kept)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_large_integers_do_not_fit_half_the_width_and_keep_their_signs(dtype: torch.dtype) -> None:
    kind = torch.iinfo(dtype)
    value = torch.randint(max(-20, kind.min), 20, (1000,)).to(dtype)
    changed = one(perturb.INTEGERS, value)
    assert torch.equal(changed < 0, value < 0)
    assert bool((changed.to(torch.int64).abs() >= 2 ** (kind.bits // 2)).all())
    assert perturb.skipped(perturb.INTEGERS, (), ("float32", str(dtype).removeprefix("torch."))) == ""


def test_integers_at_the_end_of_their_type_stay_in_it_and_masks_stay_masks() -> None:
    assert one(perturb.INTEGERS, torch.tensor([127, -128], dtype=torch.int8)).tolist() == [127, -128]
    mask = torch.tensor([0, 1, 1])
    assert torch.equal(one(perturb.INTEGERS, mask), mask)
    assert perturb.apply(perturb.INTEGERS, [mask > 0, torch.ones(3)], 0)[1].tolist() == [1.0, 1.0, 1.0]
    assert perturb.skipped(perturb.INTEGERS, (), ("float32", "bool")) == "no integer input"


def test_integers_and_positive_tensors_keep_what_they_are() -> None:
    index = torch.arange(5)
    assert perturb.apply(perturb.UP, [index], 0)[0] is index
    positive = torch.rand(64) + 0.1
    assert torch.equal(one(perturb.FLIPPED, positive), positive)
    assert not bool((one(perturb.TIES, positive) < 0).any())


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_low_bits_make_rounding_to_narrower_types_go_towards_zero(narrow: torch.dtype) -> None:
    value = one(perturb.LOW_BITS, torch.randn(4096))
    lost = (value.abs() - value.to(narrow).float().abs()) / value.abs()
    held = (value.view(torch.int32) & 0xFFFF) == 0  # by chance a number of bfloat16, so left as it is
    normal = (value.abs() > 1e-3) & ~held  # of float16
    assert bool((lost[normal] > 0).all())
    assert float(lost[normal].mean()) > (1e-3 if narrow is torch.bfloat16 else 2e-4)


def test_low_bits_leave_masks_and_codes_alone() -> None:
    codes = torch.tensor([0.0, 1.0, -1.0, 127.0, 0.5, math.inf, math.nan])
    assert torch.equal(one(perturb.LOW_BITS, codes).nan_to_num(7.0), codes.nan_to_num(7.0))


def test_ties_are_exact_and_many() -> None:
    values = one(perturb.TIES, torch.randn(64, 64))
    assert len(values.unique()) < 24
    assert float(values.amax(-1, keepdim=True).eq(values).sum(-1).float().mean()) > 1.5
    assert bool((values == 0).any())


@pytest.mark.parametrize("seed", range(4))
def test_nan_and_infinities_do_not_meet(seed: int) -> None:
    value = one(perturb.NON_FINITE, torch.randn(4, 2048), seed)
    assert bool(value.isnan().any(-1).any())
    assert bool(value.isinf().any(-1).any())
    assert not bool((value.isnan().any(-1) & value.isinf().any(-1)).any())
    assert bool(one(perturb.NON_FINITE, torch.ones(1), seed).isnan().all())


def test_the_last_elements_stand_out_in_a_sum_over_any_dimension() -> None:
    value = one(perturb.ENDS, torch.ones(8, 9, 10))
    for dim in range(3):
        assert bool((value.select(dim, -1) > value.narrow(dim, 0, value.shape[dim] - 1).sum(dim)).all())


@pytest.mark.parametrize("shape", [(), (1,), (0,), (1, 1), (3, 0)])
@pytest.mark.parametrize("family", perturb.FAMILIES)
def test_small_and_empty_tensors_are_no_problem(family: str, shape: tuple[int, ...]) -> None:
    assert one(family, torch.randn(shape)).shape == shape


def test_an_expanded_input_may_be_changed() -> None:
    value = torch.randn(1, 8).expand(4, 8)
    assert torch.equal(one(perturb.FLIPPED, value), -value)


def test_shape_groups_are_counted_and_made() -> None:
    groups = [[torch.ones(1)], [torch.ones(2)]]
    module = SimpleNamespace(get_inputs=lambda: [torch.ones(3)], get_input_groups=lambda: groups)
    assert perturb.make(module, perturb.COUNT_GROUPS, 1, ()) == 2
    assert perturb.make(module, f"{perturb.GROUP}1", 1, ()) == groups[1]
    assert perturb.make(module, perturb.GENERATED, 1, ())[0].shape == (3,)


def test_an_unknown_family_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown 'upside down'"):
        perturb.apply("upside down", [torch.ones(2)], 0)


@given(seed=st.integers(0, 2**62), dtype=st.sampled_from([torch.float32, torch.int64, torch.int8, torch.bool]))
def test_shuffled_slices_keep_every_value_and_what_a_row_or_column_holds(seed: int, dtype: torch.dtype) -> None:
    value = torch.arange(12).reshape(3, 4).remainder(5).to(dtype)
    offsets = torch.arange(5).to(dtype)
    if dtype != torch.bool:
        assert torch.equal(one(perturb.SHUFFLED, offsets, seed), offsets)
        assert sorted(one(perturb.SHUFFLED, offsets.flip(0), seed).tolist()) == offsets.tolist()
    changed = one(perturb.SHUFFLED, value, seed)
    assert changed.flatten().sort().values.tolist() == value.flatten().sort().values.tolist()
    assert sorted(changed.sum(0).tolist()) == sorted(value.sum(0).tolist())
    assert sorted(changed.sum(1).tolist()) == sorted(value.sum(1).tolist())


def test_a_mask_that_is_the_same_everywhere_changes_too() -> None:
    for mask in (torch.ones(40, 50, dtype=torch.bool), torch.zeros(40, 50, dtype=torch.bool)):
        changed = one(perturb.SHUFFLED, mask)
        assert 0.05 < float((changed != mask).float().mean()) < 0.25
    assert perturb.skipped(perturb.SHUFFLED, (), ()) == "no tensor input"
    assert perturb.skipped(perturb.SHUFFLED, (), ("bool",)) == ""
    permuted = torch.randn(2, 3, 4).permute(2, 0, 1)
    assert one(perturb.SHUFFLED, permuted).stride() == permuted.stride()


@given(seed=st.integers(0, 2**62))
def test_some_of_several_inputs_are_changed_at_least_one_and_none_out_of_its_domain(seed: int) -> None:
    values = [torch.ones(3), torch.ones(3), torch.ones(3), 7]
    changed = perturb.apply(perturb.UP, values, seed, ("any", "any", "unit"), some=True)
    factors = [float(value[0]) for value in changed[:3]]
    assert factors[2] == 1.0 and changed[3] == 7
    assert factors[:2] in ([16.0, 1.0], [1.0, 16.0], [16.0, 16.0])
    assert perturb.apply(perturb.UP, values[:1], seed, some=True)[0][0] == 16.0


def test_inputs_can_be_changed_alike_whatever_they_are() -> None:
    module = SimpleNamespace(get_inputs=lambda: [torch.randint(0, 9, (50,)) * 0 + torch.arange(50).flip(0)])
    same = [perturb.make(module, perturb.SHUFFLED, seed, (), change_seed=5)[0] for seed in (1, 2)]
    assert torch.equal(*same)
    other = [perturb.make(module, perturb.SHUFFLED, seed, ())[0] for seed in (1, 2)]
    assert not torch.equal(*other)
    assert perturb.may_end_a_process(perturb.SHUFFLED, ("float32", "int64"))
    assert not perturb.may_end_a_process(perturb.SHUFFLED, ("float32", "bool"))
    assert not perturb.may_end_a_process(perturb.UP, ("int64",))
