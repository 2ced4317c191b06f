"""The table of tolerances, and how an op's kind is found out."""

import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from evaluator.referee.correctness import accuracy, tolerances
from evaluator.referee.correctness.tolerances import FLOORS, Tolerances
from evaluator.referee.protocol import input_families
from evaluator.referee.protocol.traits import EPSILON, KINDS, Traits
from evaluator.referee.runner import oracle, perturb
from tasks.declarations import MAX_TOLERANCE
from tests.support.doc_tables import constant, quantities, table

DOCS = (Path(__file__).parents[4] / "docs" / "accuracy.md").read_text()
X = torch.randn(6, 8, 32)


def traits(function: object, *inputs: torch.Tensor) -> Traits:
    return Traits.from_json(oracle.evaluate(function, list(inputs or (X,)))["traits"])


@pytest.mark.parametrize(
    ("function", "kind", "terms"),
    [
        (lambda x: x.transpose(0, 1).contiguous(), "exact", 1),
        (lambda x: torch.cat([x, x]).gather(0, x.argmax(0, keepdim=True)), "exact", 1),
        (lambda x: F.relu(x).amax(-1), "exact", 1),
        (lambda x: F.max_pool2d(x, 2), "exact", 1),
        (lambda x: x.sort().values, "exact", 1),
        (lambda x: F.gelu(x) * 2 + 1, "elementwise", 1),
        (lambda x: x.scatter_reduce(0, torch.zeros_like(x, dtype=torch.long), x, "sum"), "reduction", 1),
        (lambda x: x.index_put((torch.zeros(6, dtype=torch.long),), x, accumulate=True), "reduction", 1),
        (lambda x: x.sum(-1), "reduction", 32),
        (lambda x: x.mean(), "reduction", 6 * 8 * 32),
        (lambda x: torch.softmax(x, -1), "reduction", 1),
        (lambda x: F.layer_norm(x, (32,)), "reduction", 1),
        (lambda x: x.cumsum(1), "scan", 8),
        (lambda x: x @ x.transpose(-1, -2), "matmul", 32),
        (lambda x: F.linear(x, x[0], x[0, :, 0]), "matmul", 32),
        (lambda x: F.conv1d(x, x[:3, :, :5]), "matmul", 40),
        (lambda x: torch.cdist(x, x), "matmul", 32),
        (lambda x: torch.fft.fft(x).real, "other", 1),
    ],
)
def test_the_kind_is_told_by_the_operators_that_run(function: object, kind: str, terms: int) -> None:
    found = traits(function)
    assert (found.kind, found.terms) == (kind, terms)


def test_the_loosest_kind_decides() -> None:
    assert traits(lambda x: F.relu(x).sum(-1).cumsum(0)).kind == "scan"


def test_order_of_equal_values_is_noticed() -> None:
    assert traits(lambda x: x.topk(3).indices).unstable_ties
    assert not traits(lambda x: x.argmax(-1)).unstable_ties


def test_an_op_that_narrows_by_itself_is_noticed() -> None:
    assert traits(lambda x: x.to(torch.bfloat16).to(x.dtype)).narrowest == "bfloat16"
    assert traits(lambda x: (x.float() * 2).to(x.dtype)).narrowest == "float32"
    assert traits(lambda x: x * 2).narrowest is None
    narrow = Tolerances(Traits("elementwise", narrowest="bfloat16"))
    assert narrow.floor("float32") == FLOORS["elementwise"]["bfloat16"]
    assert Tolerances(Traits("elementwise", narrowest="float32")).floor("bfloat16") == narrow.floor("bfloat16")


@pytest.mark.parametrize(
    ("function", "narrowest"),
    [
        (lambda x: (x * 2, x.amax().bfloat16()), None),
        (lambda x: (x * 2, (x.half() + 1).abs()), None),
        (lambda x: (x * 2, x.to(torch.bfloat16).to(torch.float16)), "bfloat16"),
        (lambda x: x * x.amax().bfloat16(), "bfloat16"),
        (lambda x: torch.zeros_like(x).copy_(x.half()), "float16"),
        (lambda x: torch.cat([x, x.half()]), "float16"),
        (lambda x: torch.where(x.bfloat16() > 0.5, x, 0.0), "bfloat16"),
        (lambda x: x.gather(0, x.bfloat16().argmax(0, keepdim=True)), "bfloat16"),
        (lambda x: x * x.amax().bfloat16().item(), "bfloat16"),
        (lambda x: torch.add(x, other=x.half()), "float16"),
        (lambda x: (x.half() @ x.half().transpose(-1, -2)).bfloat16().float(), "bfloat16"),
    ],
)
def test_a_narrow_value_counts_where_something_else_is_made_of_it(function: object, narrowest: str | None) -> None:
    assert traits(function).narrowest == narrowest


def test_tables_that_are_no_parameters_are_widened_too() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.rand(32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.table

    assert oracle.evaluate(Model(), [X])["outputs"].dtype is torch.float64


def test_what_a_runner_says_is_not_taken_on_trust() -> None:
    assert Traits.from_json({"kind": "../etc", "terms": -3, "narrowest": "int3"}) == Traits()
    assert Traits.from_json({}) == Traits()


def test_floors_grow_with_long_sums_and_not_without_end() -> None:
    floors = [Tolerances(Traits("reduction", terms)).floor("float32") for terms in (1, 1000, 10**5, 10**6, 10**12)]
    assert floors == sorted(floors)
    assert floors[0] == floors[1] == 1e-5
    assert floors[-1] == tolerances.CEILINGS["float32"]
    assert Tolerances(Traits("elementwise", 10**6)).floor("float32") == 2e-6
    assert Tolerances(Traits("reduction", 10**6)).floor("bfloat16") == FLOORS["reduction"]["bfloat16"]


def test_a_floor_lies_far_below_the_rounding_of_the_next_narrower_type() -> None:
    tf32 = 2.0**-11
    for kind in KINDS:
        assert Tolerances(Traits(kind, 10**9)).floor("float32") < tf32 / 8
        assert Tolerances(Traits(kind, 10**9)).floor("float64") < EPSILON["float32"] / 1000
        assert FLOORS[kind]["float16"] < EPSILON["bfloat16"] / 2


def test_floors_of_sums_are_wider_where_terms_are_equal() -> None:
    tf32 = 2.0**-11
    for kind in KINDS:
        usual = Tolerances(Traits(kind, 10**9))
        ties = usual.on(input_families.TIES)
        for dtype in EPSILON:
            sums = kind in tolerances.SUMMING and dtype in tolerances.EQUAL_TERMS
            assert (ties.floor(dtype) > usual.floor(dtype)) == (sums and dtype == "float32"), (kind, dtype)
        assert ties.floor("float32") < tf32 / 3
        equal = {input_families.TIES, input_families.ROWS, input_families.COLUMNS}
        for family in set(input_families.FAMILIES) - {input_families.FAR}:
            same = ties if family in equal else usual
            assert all(usual.on(family).floor(dtype) == same.floor(dtype) for dtype in EPSILON)
    assert Tolerances(Traits("reduction")).on(input_families.TIES).floor("float64") == 3e-13
    assert Tolerances(declared={"float32": 1e-6}).on(input_families.TIES).floor("float32") == 1e-6


def test_floors_of_sums_are_wider_where_means_are_far_larger_than_deviations() -> None:
    for kind in KINDS:
        far = Tolerances(Traits(kind)).on(input_families.FAR)
        assert far.floor("float32") == (4e-3 if kind in tolerances.SUMMING else FLOORS[kind]["float32"])
        assert far.floor("float64") == (1e-11 if kind in tolerances.SUMMING else FLOORS[kind]["float64"])
        assert far.floor("bfloat16") == FLOORS[kind]["bfloat16"]


def test_complex_numbers_are_held_to_their_parts_type() -> None:
    assert Tolerances().floor("complex64") == Tolerances().floor("float32")
    value = torch.randn(64, dtype=torch.complex64)
    assert accuracy.compare("", value, value, value.to(torch.complex128)).wrong is None
    off = value.clone()
    off[5] += 0.01j
    wrong = accuracy.compare("", off, value, value.to(torch.complex128)).wrong
    assert wrong is not None
    assert "element 5 is" in wrong.message
    off[5] = math.nan
    undefined = accuracy.compare("", off.view(8, 8), value.view(8, 8), value.view(8, 8).to(torch.complex128)).wrong
    assert undefined is not None
    assert "element 5 (at [0, 5]) is nan" in undefined.message


def test_no_declared_tolerance_lets_zeros_pass() -> None:
    reference = torch.randn(1000)
    loose = Tolerances(declared={"float32": MAX_TOLERANCE})
    assert accuracy.compare("", torch.zeros(1000), reference, reference.double(), loose).wrong is not None


# The page for people says what the code does.


def test_the_page_has_the_table_of_the_code() -> None:
    rows = table(DOCS, "kind")
    assert list(rows) == list(KINDS)
    for kind, cells in rows.items():
        assert [float(cell) for cell in cells[:4]] == [
            FLOORS[kind][dtype] for dtype in ("float64", "float32", "float16", "bfloat16")
        ]


@pytest.mark.parametrize("name", table(DOCS, "name"))
def test_the_page_has_the_constants_of_the_code(name: str) -> None:
    assert quantities(table(DOCS, "name")[name][0]) == pytest.approx(constant(name))


def test_the_pages_formulas_have_the_factors_of_the_code() -> None:
    assert f"≤ {accuracy.MAX_FACTOR:g} · max|r − o| + floor · S\n" in DOCS
    assert f"≤ {accuracy.RMS_FACTOR:g} · rms(r − o) + floor · max(1/2, 1/√n) · rms(o)\n" in DOCS
    assert f"max(table, {tolerances.LONG_SUM:g} · ε · √n)" in DOCS


def test_the_page_has_the_families_and_domains_of_the_code() -> None:
    families = table(DOCS, "family")
    assert list(families) == [*input_families.FAMILIES, input_families.GIVEN_WEIGHTS, f"{input_families.GROUP}N"]
    domains = table(DOCS, "domain")
    assert list(domains) == list(input_families.DOMAINS)
    for domain, cells in domains.items():
        named = set(re.findall(r"`([^`]+)`", cells[1]))
        assert named == (set() if domain == "fixed" else set(input_families.DOMAINS[domain])), domain


def test_the_page_has_the_oracle_limits_of_the_code() -> None:
    limits = table(DOCS, "dtype")
    assert {dtype: float(cells[0]) for dtype, cells in limits.items()} == tolerances.ORACLE_LIMITS


@pytest.mark.parametrize("seed", range(4))
def test_far_from_zero_a_log_of_a_sum_needs_the_maximum(seed: int) -> None:
    generated = torch.randn(64, 256, generator=torch.Generator().manual_seed(seed))
    [x] = perturb.apply(input_families.FAR, [generated], seed)
    reference, oracle = torch.logsumexp(x, 1), torch.logsumexp(x.double(), 1)
    far = Tolerances(Traits("reduction", 256)).on(input_families.FAR)
    assert accuracy.compare("", reference, reference, oracle, far).wrong is None
    low = x[x.amax(1) < 0]
    assert len(low) == 32
    for part in (x, low):
        right, exact = torch.logsumexp(part, 1), torch.logsumexp(part.double(), 1)
        wrong = accuracy.compare("", part.exp().sum(1).log(), right, exact, far).wrong
        assert wrong is not None and wrong.code == "nan"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_zero_is_accepted_for_subnormal_numbers_even_where_there_are_no_others(dtype: str) -> None:
    kind = torch.finfo(getattr(torch, dtype))
    oracle = torch.full((64,), kind.smallest_normal / 8, dtype=torch.float64)
    reference = oracle.to(getattr(torch, dtype))
    assert accuracy.compare("", torch.zeros_like(reference), reference, oracle).wrong is None
    larger = oracle * 1024
    assert accuracy.compare("", torch.zeros_like(reference), larger.to(reference.dtype), larger).wrong is not None


def test_float16_counts_subnormal_numbers() -> None:
    oracle = torch.full((64,), 2.0**-17, dtype=torch.float64)
    reference = oracle.half()
    assert accuracy.compare("", torch.zeros_like(reference), reference, oracle).wrong is not None
