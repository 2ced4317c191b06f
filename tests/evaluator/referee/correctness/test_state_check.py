"""A model's state: which parameters are varied, how they are found in a candidate, and how they are compared."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from evaluator.referee.correctness import check, state_check
from evaluator.referee.correctness.findings import Evidence
from evaluator.referee.correctness.state_check import Names
from evaluator.referee.correctness.tolerances import Tolerances
from evaluator.referee.errors import Finding
from evaluator.referee.platforms.cpu.memory import read_memory
from evaluator.referee.protocol.tensors import encode
from evaluator.referee.runner import model_state


class Reader:
    """Reads tensors out of this process as a handle reads them out of a runner."""

    def read(self, row: Any) -> torch.Tensor:
        data = torch.empty(row.span_bytes, dtype=torch.uint8)
        read_memory(os.getpid(), row.place, data)
        return data


def matched(reference: nn.Module, candidate: Any) -> Names:
    tree, kept = encode(model_state.all_tensors(candidate))
    found = state_check.match(Reader(), tree, model_state.of_model(reference))  # type: ignore[arg-type]
    del kept
    return found


def seeded(make: Any) -> Any:
    torch.manual_seed(7)
    return make()


def test_parameters_and_running_statistics_change_and_other_buffers_do_not() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Embedding(4, 3, padding_idx=1))
    model.register_buffer("mask", torch.tensor([0.0, 1.0, 1.0]))
    before = {name: value.clone() for name, value in model_state.of_model(model).items()}
    model_state.vary(model, 3)
    after = model_state.of_model(model)
    kept = {name for name in before if torch.equal(before[name], after[name])}
    assert kept == {"mask", "1.num_batches_tracked"}
    assert torch.equal(after["2.weight"][1], torch.zeros(3)), "a padding row stays zero"
    assert bool((after["1.bias"] > 0).all()) and bool((after["1.running_var"] > 0).all())
    model_state.vary(other := nn.Linear(4, 4), 3)
    assert not torch.equal(other.weight, other.weight[:1].expand(4, 4))


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8), st.integers(0, 2**62))
def test_signs_stay_and_nothing_changes_by_more_than_a_quarter(numbers: list[float], seed: int) -> None:
    model = nn.Module()
    model.weight = nn.Parameter(torch.tensor(numbers))
    before = model.weight.detach().clone()
    model_state.vary(model, seed)
    after = model.weight.detach()
    if bool(before.any()):
        assert torch.equal(after.sign(), before.sign())
        assert bool(((after - before).abs() <= 0.2501 * before.abs() + 1e-38).all())
    else:
        assert bool((after > 0).all())


def test_half_of_a_new_norms_weights_and_biases_become_negative_where_signs_may_change() -> None:
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(3, 5), nn.PReLU(), nn.Embedding(4, 3, padding_idx=1))
    linear = model[1].weight.detach().clone()
    assert model_state.vary(model, 3, signs=True)
    after = model_state.of_model(model)
    for name in ("0.weight", "0.bias", "0.running_mean"):
        assert int((after[name] < 0).sum()) == 3, name
        assert int((after[name] > 0).sum()) == 3, name
    assert bool((after["0.running_var"] > 0).all())
    assert after["2.weight"].item() > 0, "the one number of a slope or a temperature"
    assert torch.equal(after["1.weight"].sign(), linear.sign())
    assert torch.equal(after["3.weight"][1], torch.zeros(3)), "a padding row stays zero"
    assert not model_state.vary(nn.Linear(3, 5), 3, signs=True), "numbers that differ keep their signs"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.complex64])
def test_parameters_of_any_floating_type_are_varied(dtype: torch.dtype) -> None:
    model = nn.Module()
    model.scale, model.count = nn.Parameter(torch.ones(64, dtype=dtype)), nn.Parameter(torch.ones(2).long(), False)
    model_state.vary(model, 1)
    assert model.scale.dtype == dtype
    assert len(set(model.scale.detach().to(torch.complex128).tolist())) > 20
    assert model.count.tolist() == [1, 1]


def test_weights_are_found_under_any_name_by_what_they_hold() -> None:
    reference = seeded(lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)))

    def make() -> Any:
        layer = nn.Linear(4, 4)
        return SimpleNamespace(w=layer.weight.detach(), more=[layer.bias, {}], norm={"s": torch.ones(4)}, n=3)

    found = matched(reference, seeded(make))
    assert found.own == {"0.weight": "w", "0.bias": "more[0]", "1.weight": "norm['s']"}
    assert found.missing == ("1.bias",)


def test_names_come_first_and_a_tensor_is_used_once() -> None:
    reference = nn.Sequential(nn.LayerNorm(4), nn.LayerNorm(4))
    candidate = nn.Module()
    candidate.a, candidate.b = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))
    candidate.add_module("1", nn.LayerNorm(4))
    found = matched(reference, candidate)
    assert found.own == {"0.weight": "a", "0.bias": "b", "1.weight": "1.weight", "1.bias": "1.bias"}


def test_what_was_made_of_a_weight_is_not_that_weight() -> None:
    reference = seeded(lambda: nn.Linear(4, 4, bias=False))
    for change in (lambda w: w.t().contiguous(), lambda w: w.double(), lambda w: w * 2, lambda w: w[:2]):
        found = matched(
            reference, seeded(lambda change=change: SimpleNamespace(w=change(nn.Linear(4, 4).weight.detach())))
        )
        assert found.missing == ("weight",)


BEFORE = {"weight": torch.tensor([1.0, 2.0]), "mean": torch.tensor([0.5, 0.5]), "count": torch.tensor(3)}
WANT = {"weight": torch.tensor([1.0, 2.0]), "mean": torch.tensor([0.25, 0.75]), "count": torch.tensor(4)}
ALL = Names({name: name for name in BEFORE})


def test_the_same_changes_pass_and_rounding_may_differ() -> None:
    have = {**WANT, "mean": WANT["mean"] * (1 + 1e-7)}
    assert state_check.compare(BEFORE, WANT, have, ALL, Tolerances()) == []
    assert state_check.changed_names(BEFORE, WANT) == {"mean", "count"}
    state_check.compare_after_timing(WANT, have, ALL, frozenset({"mean", "count"}), Tolerances())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mean", BEFORE["mean"]),
        ("mean", torch.tensor([0.25, float("nan")])),
        ("count", torch.tensor(3)),
        ("weight", torch.tensor([1.0, 2.0000002])),
    ],
)
def test_a_missing_or_other_change_is_found(name: str, value: torch.Tensor) -> None:
    with pytest.raises(Finding) as found:
        state_check.compare(BEFORE, WANT, {**WANT, name: value}, ALL, Tolerances())
    assert (found.value.verdict, found.value.code) == ("wrong_output", "state")
    assert name in found.value.message


def test_a_counter_that_is_kept_elsewhere_is_named_and_not_judged() -> None:
    have = {"w": WANT["weight"], "mean": WANT["mean"]}
    names = Names({"weight": "w", "mean": "mean"}, ("count",))
    unknown = state_check.compare(BEFORE, WANT, have, names, Tolerances())
    assert unknown == ["count"]
    assert state_check.report(frozenset({"mean"}), unknown)["not_compared"] == ["count"]


@pytest.mark.parametrize("have", [{}, {"mean": torch.zeros(7)}])
def test_statistics_that_a_candidate_does_not_keep_are_found(have: dict[str, torch.Tensor]) -> None:
    with pytest.raises(Finding, match="changes mean, which the candidate lacks"):
        state_check.compare(BEFORE, WANT, {"weight": WANT["weight"], **have}, ALL, Tolerances())


def test_state_that_is_gone_after_timing_is_found() -> None:
    with pytest.raises(Finding, match="gone"):
        state_check.compare_after_timing(WANT, {}, ALL, frozenset({"mean"}), Tolerances())


def test_of_tensors_with_the_same_numbers_the_first_is_taken_and_said_to_be_a_guess() -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.LayerNorm(4), nn.LayerNorm(4)
            self.weight = nn.Parameter(torch.randn(4))

    class Reference(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(4), nn.LayerNorm(4)
            self.scale = nn.Parameter(torch.randn(4))

    names = matched(seeded(Reference), seeded(Other))
    assert names.own["first.weight"] == "a.weight" and names.own["second.bias"] == "b.bias"
    assert names.own["scale"] == "weight"
    assert names.guessed == ("first.weight", "first.bias")
    evidence = Evidence(names=names)
    assert "first.weight, first.bias could only be guessed" in check._hint(evidence)
    assert not matched(seeded(Reference), seeded(Reference)).guessed


def test_tensors_asked_for_by_name_are_those_of_all_wherever_they_are_kept() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4))
    model.weights = [torch.ones(2), torch.zeros(3)]
    everything = model_state.all_tensors(model)
    for names in (["0.running_mean", "1.weight"], ["0.running_var", "weights[1]"], ["1.weight", "nowhere.at.all"], []):
        found = model_state.some_tensors(model, names)
        assert list(found) == [name for name in names if name in everything]
        assert all(value.data_ptr() == everything[name].data_ptr() for name, value in found.items())
    compiled = SimpleNamespace(_orig_mod=nn.BatchNorm1d(4))  # as torch.compile wraps a module
    assert list(model_state.some_tensors(compiled, ["running_mean"])) == ["running_mean"]
    assert model_state.some_tensors(object(), ["anything"]) == {}
