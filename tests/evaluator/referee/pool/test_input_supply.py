"""The inputs of timed calls: which of them are changed, and what becomes of those that the reference does not take."""

import itertools
from typing import Any

import pytest
import torch

from evaluator.referee.isolation.calls import InputSet
from evaluator.referee.pool import input_supply
from evaluator.referee.pool.input_supply import Change, InputSupply
from evaluator.referee.pool.seeds import Seeds
from evaluator.referee.protocol.input_families import GENERATED, SPARSE
from evaluator.referee.protocol.tensors import Tree


class Pool:
    """What a supply asks of the evaluation's runners."""

    def __init__(self) -> None:
        self.seeds, self.one_by_one, self.input_bytes = Seeds(b"0" * 16), False, 1 << 20
        self.smaller, self.frugal = None, False
        self.request = type("Request", (), {"domain": ("any",)})


class Reference:
    """The reference's process, which notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def ask(self, message: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        self.asked.append(message)
        return message

    def begin(self, message: dict[str, Any]) -> None:
        self.asked.append(message)

    def finish(self, *, timeout_s: float) -> dict[str, Any]:
        return self.asked[-1]


@pytest.fixture
def supplied(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A supply whose sets hold one number: 1 if changed, 0 as generated; with the sets that were tried."""

    def copied(_: object, __: object, order: Any, reply: dict[str, Any]) -> list[InputSet]:
        return [InputSet(Tree({"list": []}, ()), [torch.tensor([family == SPARSE])], 0) for family in reply["families"]]

    monkeypatch.setattr(input_supply, "_copied", copied)

    def make(share: float, taken: bool = True) -> tuple[InputSupply, Reference, list[InputSet]]:
        tried: list[InputSet] = []
        change = Change(SPARSE, share, some=True, alike=False, is_taken=lambda inputs: tried.append(inputs) or taken)
        pool: Any = Pool()
        reference: Any = Reference()
        return InputSupply(pool, reference, change), reference, tried

    return make


def flags(sets: list[InputSet]) -> list[bool]:
    return [bool(inputs.contents[0]) for inputs in sets]


def test_a_share_of_the_sets_is_changed_one_by_one_and_each_is_tried(supplied: Any) -> None:
    supply, reference, tried = supplied(0.25)
    found = [flag for _ in range(500) for flag in flags(supply.take(4))]
    assert len(found) == 2000 and 0.2 < sum(found) / 2000 < 0.3
    assert len(tried) == sum(found)
    after = [second for first, second in itertools.pairwise(found) if first]
    assert abs(sum(after) / len(after) - 0.25) < 0.06, "one tells nothing of the next"
    assert all(message["how"] == {"some": True, "change_seed": None} for message in reference.asked)


def test_what_the_reference_does_not_take_is_made_anew(supplied: Any) -> None:
    supply, _, tried = supplied(0.5, taken=False)
    assert flags(supply.take(40)) == [False] * 40
    assert tried


def test_sets_that_were_made_beside_a_round_are_changed_as_well(supplied: Any) -> None:
    supply, reference, _ = supplied(1.0)
    supply.prepare(4)
    [order] = reference.asked
    assert order["families"] == [SPARSE] * 4 and order["beside"]
    assert flags(supply.take(4)) == [True] * 4
    assert len(reference.asked) == 1


def test_without_a_change_all_sets_are_as_generated(supplied: Any) -> None:
    supply, reference, _ = supplied(1.0)
    supply.change = None
    assert flags(supply.take(3)) == [False] * 3
    assert [message["families"] for message in reference.asked] == [[GENERATED] * 3]
