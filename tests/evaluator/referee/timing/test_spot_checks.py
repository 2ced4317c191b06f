"""Spot checks: which rounds have them, and of which families they are."""

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.correctness.findings import Evidence, check
from evaluator.referee.protocol import input_families
from evaluator.referee.timing import spot_checks

JUDGED = [
    input_families.GENERATED,
    input_families.FLIPPED,
    input_families.UP,
    input_families.DOWN,
    input_families.ENDS,
    input_families.NON_FINITE,
]


def evidence() -> Evidence:
    found = Evidence()
    for family in JUDGED:
        found.add(check(family, True), 0.0)
    found.skip(input_families.INTEGERS, "no integer input")
    return found


def test_families_used_least_come_first_and_any_may_come_again() -> None:
    used = evidence()
    used.spot_checks = {input_families.UP: 2, input_families.DOWN: 1}
    firsts: Counter[str] = Counter()
    lasts: Counter[str] = Counter()
    for seed in range(400):
        families = spot_checks._families(used, random.Random(seed))
        assert len(families) == len(JUDGED) - 1
        assert input_families.GENERATED not in families and input_families.INTEGERS not in families
        firsts[families[0]] += 1
        lasts[families[-1]] += 1
    assert set(firsts) == set(JUDGED[1:])
    assert lasts[input_families.UP] > 300
    assert all(
        firsts[family] > 60 for family in (input_families.FLIPPED, input_families.ENDS, input_families.NON_FINITE)
    )
    assert 0 < firsts[input_families.UP] < 60


@given(seed=st.integers(0, 2**32), at_least=st.integers(1, 3), over_budget=st.booleans())
def test_a_round_has_at_least_what_is_asked_for(seed: int, at_least: int, over_budget: bool) -> None:
    waiting: list[Any] = ["first", "second", "third", "fourth"]
    due = spot_checks.take_due(waiting, random.Random(seed), at_least=at_least, over_budget=over_budget)
    assert [*due, *waiting] == ["first", "second", "third", "fourth"]
    assert at_least <= len(due) <= max(at_least, 1 if over_budget else 2)
    assert spot_checks.take_due([], random.Random(seed), at_least=at_least, over_budget=over_budget) == []


def test_half_of_the_other_rounds_have_some_and_a_quarter_where_they_are_dear() -> None:
    for over_budget, share in ((False, 0.5), (True, 0.25)):
        rng, with_some = random.Random(7), 0
        for _ in range(1000):
            waiting: list[Any] = [1, 2, 3]
            with_some += bool(spot_checks.take_due(waiting, rng, at_least=0, over_budget=over_budget))
        assert abs(with_some / 1000 - share) < 0.05


def test_families_that_have_not_come_are_owed_once_each() -> None:
    used = evidence()
    assert set(spot_checks.unused(used)) == set(JUDGED[1:])
    used.spot_checks = {input_families.UP: 2, input_families.FLIPPED: 1}
    assert set(spot_checks.unused(used)) == {input_families.DOWN, input_families.ENDS, input_families.NON_FINITE}
    waiting: list[Any] = [
        SimpleNamespace(family=family) for family in (input_families.UP, input_families.DOWN, input_families.DOWN)
    ]
    assert spot_checks.families_missing(waiting, used) == 1
    assert spot_checks.families_missing([], used) == 0


def test_where_calls_change_state_only_gentle_families_come() -> None:
    found = evidence()
    found.changing = frozenset({"running_mean"})
    assert set(spot_checks._families(found, random.Random(0))) == {input_families.FLIPPED, input_families.DOWN}
    assert set(spot_checks.unused(found)) == {input_families.FLIPPED, input_families.DOWN}
