"""Medians of paired ratios and their bootstrap intervals."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.referee import statistics, timing

times = st.lists(st.floats(1e-6, 10.0), min_size=3, max_size=20)


@settings(max_examples=40, deadline=None)
@given(groups=st.lists(times, min_size=1, max_size=4))
def test_the_interval_holds_the_median_and_lies_within_the_data(groups: list[list[float]]) -> None:
    value, low, high = statistics.median_interval(groups)
    everything = [item for group in groups for item in group]
    assert min(everything) <= low <= value <= high <= max(everything)


def test_the_interval_repeats() -> None:
    groups = [[1.0, 2.0, 3.0], [2.0, 2.5, 9.0]]
    assert statistics.median_interval(groups) == statistics.median_interval(groups)


def test_no_values_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        statistics.median_interval([[], []])


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = random.Random(7)
    held = 0
    for _ in range(200):
        groups = [[rng.gauss(1.0, 0.05) for _ in range(12)] for _ in range(2)]
        _, low, high = statistics.median_interval(groups)
        held += low <= 1.0 <= high
    assert held >= 180


def test_one_wild_block_does_not_move_the_speedup() -> None:
    measurement = timing.Measurement()
    measurement.open_set(("eager", "candidate"))
    for block in range(9):
        measurement.add_block("eager", [2.0, 2.0])
        measurement.add_block("candidate", [1.0, 1.0 if block else 500.0])
    value, low, _ = measurement.speedup("eager")
    assert value == low == 2.0


def test_one_interrupted_call_does_not_move_its_block() -> None:
    measurement = timing.Measurement()
    measurement.open_set(("eager", "candidate"))
    for _ in range(9):
        measurement.add_block("eager", [2.0, 2.1, 2.0])
        measurement.add_block("candidate", [1.0, 1.0, 40.0])
    assert measurement.speedup("eager") == (2.0, 2.0, 2.0)


def test_calls_that_are_slow_now_and_then_are_uneven() -> None:
    def measured(candidate: list[float]) -> bool:
        measurement = timing.Measurement()
        measurement.open_set(("eager", "candidate"))
        for _ in range(9):
            measurement.add_block("eager", [2.0, 2.1, 2.0, 2.4])
            measurement.add_block("candidate", candidate)
        return measurement.uneven()

    assert not measured([1.0, 1.05, 1.0, 1.2])
    assert measured([1.0, 1.0, 1.0, 2.0])
    assert measured([1.0] * 23 + [40.0])
    assert not measured([1.0] * 23 + [2.0])


def test_every_order_is_followed_by_its_mirror_image() -> None:
    orders = timing.orders(("eager", "compile", "candidate"), 8, random.Random(1))
    assert len(orders) == 8
    for first, second in zip(orders[::2], orders[1::2], strict=True):
        assert second == tuple(reversed(first))
        assert sorted(first) == ["candidate", "compile", "eager"]
