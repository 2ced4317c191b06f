"""Spot checks: which rounds have them, and of which families they are."""

import itertools
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
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


@given(seed=st.integers(0, 2**32), at_least=st.integers(0, 3), calls=st.sampled_from([2, 4]))
def test_a_round_has_at_least_what_is_asked_for(seed: int, at_least: int, calls: int) -> None:
    ready: list[Any] = ["first", "second", "third", "fourth"]
    due = spot_checks.draw(ready, random.Random(seed), calls=calls, at_least=at_least)
    assert [*due, *ready] == ["first", "second", "third", "fourth"]
    assert at_least <= len(due) <= max(at_least, calls)
    assert spot_checks.draw([], random.Random(seed), calls=calls, at_least=at_least) == []


def test_an_eighth_of_the_calls_has_one_before_it() -> None:
    rng = random.Random(7)
    drawn = [len(spot_checks.draw([None] * 4, rng, calls=4)) for _ in range(2000)]  # type: ignore[list-item]
    assert abs(sum(drawn) / (4 * 2000) - spot_checks.CHANCE) < 0.01
    assert abs(drawn.count(0) / 2000 - (1 - spot_checks.CHANCE) ** 4) < 0.03


def test_what_one_round_had_tells_nothing_of_the_next() -> None:
    rng = random.Random(3)
    had = [bool(spot_checks.draw([None] * 4, rng, calls=4)) for _ in range(4000)]  # type: ignore[list-item]
    after = [second for first, second in itertools.pairwise(had) if first]
    assert abs(sum(after) / len(after) - sum(had) / len(had)) < 0.03


def test_those_of_families_that_have_not_come_are_made_first_as_long_as_there_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(spot_checks.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(spot_checks, "_make", lambda *given, **_: SimpleNamespace(family=given[3], nbytes=1))
    used = evidence()
    used.spot_checks = {input_families.UP: 2, input_families.FLIPPED: 1}
    nothing: Any = None
    pool: Any = SimpleNamespace(frugal=False, memory_bytes=1000)

    def made(**how: Any) -> list[str]:
        return [each.family for each in spot_checks.make(pool, nothing, used, random.Random(5), **how)]

    missing = {input_families.DOWN, input_families.ENDS, input_families.NON_FINITE}
    owed = sorted(missing)
    every = made(most=2, limit_s=100.0, owed=owed, owed_s=100.0)
    assert set(every[:3]) == missing and len(every) == 5 and owed == []
    owed = sorted(missing)
    assert len(made(most=1, owed=owed, owed_s=1.5)) == 1, "of these only what can be made in time"
    assert len(owed) == 2, "the others may be made later"
    assert len(made(most=3, limit_s=100.0)) == 3
    assert len(made(most=3)) == 1, "one in any case"


@pytest.mark.parametrize(("nbytes", "count"), [(10, 5), (40, 3), (125, 1), (5000, 1)])
def test_only_as_many_are_made_as_an_eighth_of_the_memory_holds(
    nbytes: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An op with inputs of 400 MB was refused, because one of each family took more than 18 GB."""
    monkeypatch.setattr(spot_checks, "_make", lambda *given, **_: SimpleNamespace(family=given[3], nbytes=nbytes))
    nothing: Any = None
    pool: Any = SimpleNamespace(frugal=False, memory_bytes=1000)
    missing = {input_families.DOWN, input_families.ENDS, input_families.NON_FINITE}
    used = evidence()
    used.spot_checks = {input_families.UP: 2, input_families.FLIPPED: 1}

    def made(seed: int, owed: list[str]) -> list[str]:
        how = {"most": 2, "limit_s": 100.0, "owed": owed, "owed_s": 100.0}
        return [each.family for each in spot_checks.make(pool, nothing, used, random.Random(seed), **how)]

    assert {made(seed, sorted(missing))[0] for seed in range(30)} == missing, "any may have to wait"
    owed = sorted(missing)
    first = made(5, owed)
    assert len(first) == count and {*first[:3], *owed} == missing, "what there is no room for is still owed"


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


def test_timed_inputs_are_changed_where_the_generator_makes_some_alike_and_the_family_was_judged() -> None:
    def change(found: Evidence, *dtypes: str) -> Any:
        rows: Any = tuple(SimpleNamespace(dtype=dtype) for dtype in dtypes)
        found.input_rows = rows
        nothing: Any = None
        return spot_checks.change_of_timed(nothing, nothing, found)

    found = evidence()
    found.add(check(input_families.SPARSE, True), 0.0)
    assert change(found, "float32") is None, "all of them are random"
    found.always_same = True
    made = change(found, "float32", "bool")
    assert (made.family, made.share) == (input_families.SPARSE, spot_checks.CHANGED_SHARE)
    assert (made.some, made.alike) == (True, False)
    made = change(found, "float32", "int64")
    assert (made.some, made.alike) == (False, True), "as it was tried on a process of its own"
    found.changing = frozenset({"running_mean"})
    assert change(found, "float32") is None
    skipped = evidence()
    skipped.always_same = True
    skipped.skip(input_families.SPARSE, "the reference gives NaN for them")
    assert change(skipped, "float32") is None
