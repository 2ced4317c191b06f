"""Slices that are small beside the whole output: gross errors in them are found, and no rounding is taken for one."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.referee.correctness import accuracy, slices
from evaluator.referee.correctness.error_norms import own_error
from evaluator.referee.correctness.findings import Evidence
from evaluator.referee.correctness.tolerances import Tolerances
from evaluator.referee.errors import Finding
from evaluator.referee.protocol.traits import Traits
from evaluator.referee.timing import spot_checks

SHAPES = [(64, 48), (5, 24, 17), (20, 3, 4, 16), (33, 1, 40), (1, 300, 3), (2, 20000), (20000, 2), (3, 5, 7, 2, 16)]
HALF = [torch.float32, torch.float16, torch.bfloat16]


def compared(
    candidate: torch.Tensor, reference: torch.Tensor, oracle: torch.Tensor | None, **more: Any
) -> accuracy.Wrong | None:
    return accuracy.compare("", candidate, reference, oracle, **more).wrong


def scaled(shape: tuple[int, ...], dim: int, spread: float, generator: torch.Generator) -> torch.Tensor:
    """Random numbers whose slices along a dimension are of very different sizes."""
    exponents = torch.rand(shape[dim], generator=generator, dtype=torch.float64) * spread
    sizes = [1] * len(shape)
    sizes[dim] = -1
    return torch.randn(shape, generator=generator, dtype=torch.float64) * (10.0**-exponents).view(sizes)


def smallest(value: torch.Tensor, dim: int) -> int:
    others = [other for other in range(value.dim()) if other != dim]
    return int(torch.linalg.vector_norm(value, dim=others).argmin())


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from(SHAPES), data=st.data(), spread=st.floats(0.0, 11.0), seed=st.integers(0, 2**31),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)  # fmt: skip
def test_a_slice_of_zeros_is_always_wrong(
    shape: tuple[int, ...], data: Any, spread: float, seed: int, dtype: torch.dtype
) -> None:
    usual = [dim for dim, size in enumerate(shape) if size > 1 and math.prod(shape) // size >= slices.LEAST]
    dim = data.draw(st.sampled_from(usual))
    oracle = scaled(shape, dim, spread, torch.Generator().manual_seed(seed))
    reference = oracle.to(dtype)
    candidate = reference.clone()
    candidate.select(dim, smallest(oracle, dim)).zero_()
    assert compared(candidate, reference, oracle) is not None
    assert slices.doubtful(candidate, reference) or candidate.numel() > 1 << 14
    assert compared(reference, reference, oracle) is None


@settings(max_examples=100, deadline=None)
@given(
    shape=st.sampled_from(SHAPES), data=st.data(), spread=st.floats(0.0, 30.0), seed=st.integers(0, 2**31),
    dtype=st.sampled_from(HALF), slack=st.sampled_from([1.0, 8.0]),
)  # fmt: skip
def test_errors_relative_to_what_is_summed_in_a_slice_are_never_wrong(
    shape: tuple[int, ...], data: Any, spread: float, seed: int, dtype: torch.dtype, slack: float
) -> None:
    """Terms that cancel to a random degree in each slice: reference and candidate err by that of the terms' size."""
    generator = torch.Generator().manual_seed(seed)
    dim = data.draw(st.sampled_from([dim for dim, size in enumerate(shape) if size > 1]))
    terms = scaled(shape, dim, spread, generator)
    left = 10.0 ** (-12 * torch.rand(terms.select(dim, 0).shape, generator=generator, dtype=torch.float64))
    oracle = terms * left.unsqueeze(dim)
    epsilon = torch.finfo(dtype).eps

    def off(roundings: float) -> torch.Tensor:
        noise = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
        return (oracle + noise * roundings * epsilon * terms).to(dtype)

    reference, candidate = off(1.0), off(5.0)
    own = own_error(reference, oracle)
    assert slices.worst(candidate, reference, oracle, own, slack) is None


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from(SHAPES), data=st.data(), spread=st.floats(0.0, 3.5), seed=st.integers(0, 2**31)
)  # fmt: skip
def test_errors_of_the_size_that_the_whole_output_is_allowed_pass(
    shape: tuple[int, ...], data: Any, spread: float, seed: int
) -> None:
    """Also where an algorithm's errors are as large in small slices as in large ones, and the reference's are not."""
    generator = torch.Generator().manual_seed(seed)
    dim = data.draw(st.sampled_from([dim for dim, size in enumerate(shape) if size > 1]))
    oracle = scaled(shape, dim, spread, generator)
    reference = oracle.float()
    noise = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
    candidate = (oracle + noise * 5e-6 * float(oracle.square().mean().sqrt())).float()
    assert compared(candidate, reference, oracle) is None


def test_the_message_says_which_slice() -> None:
    oracle = torch.randn(20, 30, 40, dtype=torch.float64)
    oracle[:, 7] *= 1e-7
    reference = oracle.float()
    candidate = reference.clone()
    candidate[:, 7] = 0.0
    found = compared(candidate, reference, oracle)
    assert found is not None
    assert found.code == "values"
    assert "output: slice 7 of dimension 1 is wrong altogether" in found.message
    candidate = reference.clone()
    candidate[3, 7] *= 1.5
    found = compared(candidate, reference, oracle)
    assert found is not None
    assert "row [3, 7]" in found.message


def test_a_complex_row_of_zeros_is_wrong() -> None:
    oracle = torch.randn(30, 40, dtype=torch.complex128)
    oracle[4] *= 1e-8
    reference = oracle.to(torch.complex64)
    candidate = reference.clone()
    candidate[4] = 0.0
    assert compared(candidate, reference, oracle) is not None
    assert compared(reference * (1 + 1e-6), reference, oracle) is None


def test_no_slice_is_wrong_where_that_cannot_be_known() -> None:
    oracle = torch.randn(64, 64, dtype=torch.float64)
    oracle[3] *= 1e-6
    reference = oracle.float()
    candidate = reference.clone()
    candidate[3] = 0.0
    assert compared(candidate, reference, oracle) is not None
    assert compared(candidate, reference, None) is None
    assert compared(candidate, reference, oracle, tolerances=Tolerances(declared={"float32": 1e-4})) is None
    wide = oracle.clone()
    wide[3] *= 1e-9
    candidate = wide.clone()
    candidate[3] = 0.0
    assert compared(candidate, wide, wide) is None


def test_what_cancels_to_nothing_is_left_to_the_rule_for_the_whole() -> None:
    """All equal numbers without their mean: the reference's zeros are exact by luck, the oracle's are its rounding."""
    x = torch.randn(64, 48)
    x[5] = 0.1
    oracle = x.double() - x.double().mean(-1, keepdim=True)
    oracle[5] = 1e-17
    reference = x - x.mean(-1, keepdim=True)
    reference[5] = 0.0
    candidate = reference.clone()
    candidate[5] = 7.45e-9
    assert compared(candidate, reference, oracle) is None
    oracle[5] = 0.0
    assert compared(candidate, reference, oracle) is None


def test_single_poles_and_choices_are_no_slices() -> None:
    oracle = torch.randn(64, 64, dtype=torch.float64) * 1e-7
    oracle[0] = 1.0
    reference = oracle.float()
    candidate = reference.clone()
    candidate[9, 3:12] = 3e-6  # far larger than all else in its row
    assert compared(candidate, reference, oracle) is None


def test_where_the_reference_chooses_otherwise_than_the_oracle_so_may_the_candidate() -> None:
    """Rounding decides between near ties: whole rows are others then, in one as in the other."""
    oracle = torch.randn(256, 64, dtype=torch.float64)
    reference, candidate = oracle.float(), oracle.float()
    reference[3] = oracle[4]
    candidate[7] = oracle[8]
    assert compared(candidate, reference, oracle) is None
    assert compared(candidate, oracle.float(), oracle) is not None


def test_not_finite_elements_are_left_out() -> None:
    oracle = torch.randn(64, 64, dtype=torch.float64)
    oracle[3] *= 1e-6
    oracle[3, 5], oracle[:, 9], oracle[7, 7] = math.nan, math.inf, -math.inf
    reference = oracle.float()
    assert compared(reference * (1 + 1e-7), reference, oracle) is None
    candidate = reference.clone()
    candidate[3] = torch.where(torch.isfinite(reference[3]), 0.0, reference[3])
    found = compared(candidate, reference, oracle)
    assert found is not None
    assert "slice 3 of dimension 0" in found.message


def test_subnormal_rows_may_be_flushed_but_not_in_float16() -> None:
    oracle = torch.rand(64, 64, dtype=torch.float64) + 0.5
    for dtype, size, wrong in ((torch.float32, 1e-39, False), (torch.float16, 2e-5, True)):
        value = oracle * (1e-30 if dtype == torch.float32 else 1e-2)
        value[3] *= size / float(value[3].max())
        reference = value.to(dtype)
        candidate = reference.clone()
        candidate[3] = 0.0
        assert (compared(candidate, reference, reference.double()) is not None) is wrong, dtype


def test_among_timed_calls_small_slices_raise_doubts() -> None:
    oracle = torch.randn(2048, 512, dtype=torch.float64) * torch.logspace(-9, 0, 2048, dtype=torch.float64)[:, None]
    reference = oracle.float()
    allowed = accuracy.allowance(reference, oracle)
    assert not accuracy.slices_doubtful(reference * (1 + 1e-6), reference, allowed)
    candidate = reference.clone()
    candidate[:600] = 0.0
    assert accuracy.within(candidate, reference, allowed)
    assert accuracy.slices_doubtful(candidate, reference, allowed)
    assert not accuracy.slices_doubtful(candidate, reference, accuracy.allowance(reference, None))
    assert not accuracy.slices_doubtful(reference[:0], reference[:0], allowed)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (1, 40), (3, 2), (0, 4), (16, 1, 1)])
def test_small_and_empty_outputs_have_no_slices(shape: tuple[int, ...]) -> None:
    oracle = torch.ones(shape, dtype=torch.float64)
    reference = oracle.float()
    assert slices.worst(reference * 0, reference, oracle, own_error(reference, oracle)) is None
    assert not slices.doubtful(reference.clone(), reference)


def test_an_op_that_narrows_is_left_out() -> None:
    """Its oracle narrows alike, and shows no error of the reference's where something cancels."""
    oracle = torch.randn(64, 64, dtype=torch.float64)
    oracle[3] *= 1e-6
    reference = oracle.float()
    candidate = reference.clone()
    candidate[3] = 0.0
    for narrowest in ("bfloat16", "float32"):
        narrow = Tolerances(Traits("matmul", narrowest=narrowest))
        assert compared(candidate, reference, oracle, tolerances=narrow) is None
    assert compared(candidate, reference, reference) is None
    half = oracle.bfloat16()
    candidate = half.clone()
    candidate[3] = 0.0
    narrow = Tolerances(Traits("matmul", narrowest="float32"))
    assert compared(candidate, half, oracle, tolerances=narrow) is not None


def test_a_norm_in_float32_may_cancel_in_another_way() -> None:
    def centred(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return wide - wide.mean(-1, keepdim=True)

    x = torch.randn(64, 64)
    x[5] = 1 / 3
    reference, oracle = centred(x), centred(x.double())
    oracle[5] = 3e-8
    reference[5] = 3e-8
    candidate = reference.clone()
    candidate[5] = -3e-8
    assert compared(candidate, reference, oracle) is None


@pytest.mark.parametrize("changing", [False, True])
def test_a_timed_call_that_leaves_out_small_rows_is_wrong(changing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = torch.randn(256, 64, dtype=torch.float64) * torch.logspace(-9, 0, 256, dtype=torch.float64)[:, None]
    reference = oracle.float()
    candidate = reference.clone()
    candidate[:64] = 0.0
    asked = []

    def ask_reference(*_: Any, **__: Any) -> SimpleNamespace:
        asked.append(1)
        return SimpleNamespace(judged=lambda: {"": reference}, oracle={"": oracle}, own={})

    monkeypatch.setattr(spot_checks, "ask_reference", ask_reference)
    evidence = Evidence(allowances={"": accuracy.allowance(reference, oracle)})
    evidence.changing = frozenset({"count"} if changing else ())
    pool, supply, inputs = None, SimpleNamespace(collect=lambda: None, reference=None), None

    def compare(have: torch.Tensor, want: torch.Tensor) -> None:
        spot_checks.compare(pool, supply, evidence, inputs, {"": want}, {"": have})  # type: ignore[arg-type]

    compare(reference, reference)
    assert not asked
    if changing:  # the oracle cannot be asked
        compare(candidate, reference)
        assert not asked
        return
    with pytest.raises(Finding, match=r"slice .* is wrong altogether.*in a timed call"):
        compare(candidate, reference)
    asked.clear()
    candidate[:64] = reference[:64] * 1.5
    compare(reference, candidate)  # the baseline is in doubt, and the oracle agrees with the candidate
    assert asked


def test_a_mask_of_the_smallest_numbers_has_no_squares() -> None:
    oracle = torch.randn(64, 64, dtype=torch.float64)
    reference = oracle.float()
    oracle[0], reference[0] = torch.finfo(torch.float64).min, torch.finfo(torch.float32).min
    own = own_error(reference, oracle)
    assert slices.worst(reference * (1 + 1e-7), reference, oracle, own) is None
