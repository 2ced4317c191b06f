"""Which of a task's shape groups a candidate is checked on: all, or a sample that holds the evaluation's own."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.correctness.check import _MAX_COUNT, _MAX_GROUPS, _chosen_groups

SEEDS = st.integers(0, 2**62 - 1)
NUMBERS = st.none() | st.integers(0, _MAX_COUNT)


@given(st.integers(1, _MAX_GROUPS), NUMBERS, SEEDS)
def test_few_groups_are_all_chosen(count: int, own: int | None, seed: int) -> None:
    assert _chosen_groups(count, own, seed) == list(range(count))


@given(st.integers(_MAX_GROUPS + 1, _MAX_COUNT), NUMBERS, SEEDS)
def test_of_many_groups_as_many_as_are_allowed_are_chosen_once_each(count: int, own: int | None, seed: int) -> None:
    chosen = _chosen_groups(count, own, seed)
    assert len(chosen) == len(set(chosen)) == _MAX_GROUPS
    assert all(0 <= number < count for number in chosen)
    assert chosen == _chosen_groups(count, own, seed), "the seed decides"


@given(st.data(), st.integers(1, _MAX_COUNT), SEEDS)
def test_the_evaluations_own_group_is_always_chosen(data: st.DataObject, count: int, seed: int) -> None:
    own = data.draw(st.integers(0, count - 1))
    chosen = _chosen_groups(count, own, seed)
    assert own in chosen and chosen == sorted(chosen)


@given(st.integers(1, _MAX_COUNT), st.integers(0, _MAX_COUNT), SEEDS)
def test_a_group_that_is_not_there_changes_nothing(count: int, beyond: int, seed: int) -> None:
    assert _chosen_groups(count, count + beyond, seed) == _chosen_groups(count, None, seed)


@pytest.mark.parametrize("own", [None, 5])
def test_each_group_is_as_likely_as_the_next_but_the_evaluations_own(own: int | None) -> None:
    count = 3 * _MAX_GROUPS
    samples = [_chosen_groups(count, own, seed) for seed in range(2000)]
    times = Counter(number for sample in samples for number in sample)
    assert times.pop(own, 2000) == 2000
    assert set(times) == set(range(count)) - {own}
    assert max(times.values()) < 1.25 * min(times.values()), "none is likelier than others"
