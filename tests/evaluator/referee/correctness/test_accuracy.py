"""The accuracy rule: near the float64 oracle, relative to the reference's own error, with floors that scale."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.referee.correctness import accuracy
from evaluator.referee.protocol.tensors import TensorRow, Tree


def softmax_case(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    x = 0.5 * torch.randn(64, 4096, generator=torch.Generator().manual_seed(seed))
    return torch.softmax(x, -1), torch.softmax(x.double(), -1)


def test_the_reference_itself_passes() -> None:
    reference, oracle = softmax_case()
    found = accuracy.compare("", reference, reference, oracle)
    assert found.wrong is None
    assert found.max_error <= found.allowed_error


def test_zeros_do_not_pass_for_a_softmax() -> None:
    reference, oracle = softmax_case()
    found = accuracy.compare("", torch.zeros_like(reference), reference, oracle)
    assert found.wrong is not None
    assert found.wrong.code == "values"
    # the field's usual rule lets them through
    assert torch.allclose(torch.zeros_like(reference), reference, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_arithmetic_in_a_narrower_type_does_not_pass_for_float32(narrow: torch.dtype) -> None:
    x = torch.randn(256, 512)
    reference, oracle = torch.nn.functional.gelu(x), torch.nn.functional.gelu(x.double())
    found = accuracy.compare("", torch.nn.functional.gelu(x.to(narrow)).float(), reference, oracle)
    assert found.wrong is not None


def test_tf32_like_truncation_does_not_pass_for_float32() -> None:
    a, b = torch.randn(128, 256), torch.randn(256, 128)
    cut = (a.view(torch.int32) & ~0x1FFF).view(torch.float32)
    found = accuracy.compare("", cut @ b, a @ b, a.double() @ b.double())
    assert found.wrong is not None


def test_another_order_of_summation_passes() -> None:
    x = torch.rand(32, 65536)
    found = accuracy.compare("", x.view(32, 256, 256).sum(1).sum(1), x.sum(1), x.double().sum(1))
    assert found.wrong is None


@pytest.mark.parametrize("elements", [1, 2, 3, 4, 100])
def test_the_mean_of_few_errors_is_held_to_no_less_than_the_largest_is(elements: int) -> None:
    exact = torch.ones(elements)
    floor = accuracy.USUAL.floor("float32")
    off = exact + 0.9 * floor * torch.tensor([1.0] + [0.0] * (elements - 1))
    assert accuracy.compare("", off, exact, exact.double()).wrong is None, "one of them at the limit"
    all_off = accuracy.compare("", exact + 0.9 * floor, exact, exact.double())
    assert (all_off.wrong is None) == (elements == 1), "all of them at the limit"


def test_one_wrong_element_in_a_million_is_found_and_named() -> None:
    reference, oracle = softmax_case()
    candidate = reference.clone()
    candidate[63, 4095] = 0.5
    found = accuracy.compare("[0]", candidate, reference, oracle)
    assert found.wrong is not None
    assert "output[0]: element 262143 (at [63, 4095]) is 0.5" in found.wrong.message


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_non_finite_where_the_reference_is_finite_is_wrong(number: float) -> None:
    reference, oracle = softmax_case()
    candidate = reference.clone()
    candidate[0, 0] = number
    found = accuracy.compare("", candidate, reference, oracle)
    assert found.wrong is not None
    assert found.wrong.code == "nan"


def test_a_missing_nan_and_a_flipped_infinity_are_wrong() -> None:
    reference = torch.tensor([1.0, math.nan, math.inf])
    oracle = reference.double()
    for candidate in ([1.0, 0.0, math.inf], [1.0, math.nan, -math.inf], [1.0, math.inf, math.nan]):
        found = accuracy.compare("", torch.tensor(candidate), reference, oracle)
        assert found.wrong is not None
        assert found.wrong.code == "nan"
    assert accuracy.compare("", reference.clone(), reference, oracle).wrong is None


def test_integers_and_booleans_are_compared_exactly() -> None:
    reference = torch.arange(10)
    assert accuracy.compare("", reference.clone(), reference, None).wrong is None
    off = reference.clone()
    off[7] += 1
    found = accuracy.compare("", off, reference, None)
    assert found.wrong is not None
    assert "1 of 10 elements differ; element 7 is 8, expected 7" in found.wrong.message
    mask = torch.tensor([True, False])
    assert accuracy.compare("", ~mask, mask, None).wrong is not None


@settings(max_examples=50, deadline=None)
@given(scale=st.floats(1e-20, 1e20), seed=st.integers(0, 2**31))
def test_the_rule_does_not_depend_on_the_scale_of_the_output(scale: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    oracle = torch.randn(500, generator=generator, dtype=torch.float64) * scale
    reference = oracle.float()
    assert accuracy.compare("", reference, reference, oracle).wrong is None
    assert accuracy.compare("", reference * 1.001, reference, oracle).wrong is not None
    assert accuracy.compare("", torch.zeros_like(reference), reference, oracle).wrong is not None


def test_a_timed_call_is_held_to_the_same_allowance() -> None:
    reference, oracle = softmax_case(1)
    allowed = accuracy.allowance(reference, oracle)
    assert accuracy.within(reference * (1 + 1e-7), reference, allowed)
    assert not accuracy.within(torch.zeros_like(reference), reference, allowed)
    assert not accuracy.within(torch.full_like(reference, math.nan), reference, allowed)
    stale, _ = softmax_case(2)
    assert not accuracy.within(stale, reference, allowed)


def test_a_timed_call_must_agree_on_nan() -> None:
    reference = torch.tensor([1.0, math.nan, math.inf, 2.0])
    allowed = accuracy.Allowance(1e-6, 1e-6)
    assert accuracy.within(reference.clone(), reference, allowed)
    assert not accuracy.within(torch.tensor([1.0, 0.0, math.inf, 2.0]), reference, allowed)
    assert not accuracy.within(torch.tensor([1.5, math.nan, math.inf, 2.0]), reference, allowed)


def test_a_timed_call_must_agree_on_the_sign_of_infinities() -> None:
    reference = torch.tensor([1.0, math.nan, math.inf, -math.inf, 2.0])
    allowed = accuracy.Allowance(1e-6, 1e-6)
    assert accuracy.within(reference.clone(), reference, allowed)
    for element, number in ((2, -math.inf), (3, math.inf), (2, math.nan), (1, math.inf), (0, math.inf)):
        candidate = reference.clone()
        candidate[element] = number
        assert not accuracy.within(candidate, reference, allowed), (element, number)
    values = torch.complex(reference, reference.flip(0))
    assert accuracy.within(values.clone(), values, allowed)
    assert not accuracy.within(-values, values, allowed)
    assert not accuracy.within(torch.complex(reference, -reference.flip(0)), values, allowed)


def test_what_overflows_in_the_reference_is_held_to_its_own_size() -> None:
    oracle = torch.rand(1000, dtype=torch.float64) + 1.0
    oracle[7] = 20022.25
    reference = oracle.half()
    reference[7] = math.inf
    assert accuracy.compare("", oracle.half(), reference, oracle).wrong is None
    off = oracle.half()
    off[7] = 19000.0
    assert accuracy.compare("", off, reference, oracle).wrong is not None


def row(shape: tuple[int, ...], dtype: str = "float32", **changes: object) -> TensorRow:
    stride = []
    step = 1
    for size in reversed(shape):
        stride.insert(0, step)
        step *= size
    return TensorRow(**{"place": 64, "dtype": dtype, "shape": shape, "stride": tuple(stride), **changes})  # type: ignore[arg-type]


def tree(kind: str, *rows: TensorRow) -> Tree:
    return Tree({kind: [{"tensor": index} for index in range(len(rows))]}, rows)


@pytest.mark.parametrize(
    ("got", "code"),
    [
        (tree("tuple", row((2, 3))), "count"),
        (tree("tuple", row((2, 3)), row((4,)), row((4,))), "count"),
        (tree("tuple", row((2, 3)), row((5,))), "shape"),
        (tree("tuple", row((2, 3)), row((4, 1))), "shape"),
        (tree("tuple", row((2, 3), "float64"), row((4,))), "dtype"),
        (tree("tuple", row((2, 3), device="meta"), row((4,))), "device"),
        (tree("tuple", row((2, 3), layout="sparse_coo"), row((4,))), "layout"),
        (tree("tuple", row((2, 3), stride=(10**9, 1)), row((4,))), "layout"),
        (tree("tuple", row((2, 3), stride=(1, 2)), row((4,))), "layout"),
        (tree("tuple", row((2, 3)), row((4,), stride=(0,))), "layout"),
    ],
)
def test_the_form_of_outputs_must_agree(got: Tree, code: str) -> None:
    wrong = accuracy.compare_form(tree("tuple", row((2, 3)), row((4,))), got)
    assert wrong is not None
    assert wrong.code == code


def test_a_list_may_stand_for_a_tuple_and_a_copy_for_a_view() -> None:
    want = tree("tuple", row((2, 3), stride=(1, 2)), row((4,)))
    assert accuracy.compare_form(want, tree("list", row((2, 3)), row((4,)))) is None
