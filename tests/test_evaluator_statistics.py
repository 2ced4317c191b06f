"""What paired ratios come to, and their bootstrap intervals."""

import math
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
    for interval in (statistics.median_interval, statistics.ratio_interval):
        with pytest.raises(ValueError, match="no values"):
            interval([[], []])


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = random.Random(7)
    held = 0
    for _ in range(200):
        groups = [[rng.gauss(1.0, 0.05) for _ in range(12)] for _ in range(2)]
        _, low, high = statistics.ratio_interval([[[value] for value in group] for group in groups])
        held += low <= 1.0 <= high
    assert held >= 180


def test_one_wild_block_does_not_move_the_speedup() -> None:
    measurement = timing.Measurement()
    measurement.open_set(("eager", "candidate"))
    for block in range(9):
        measurement.add_block("eager", [2.0, 2.0])
        measurement.add_block("candidate", [1.0, 1.0 if block else 500.0])
    value, low, _ = measurement.speedup("eager")
    assert value == pytest.approx(2.0)
    assert low == pytest.approx(2.0, rel=1.01 * timing.RESOLUTION)


def test_one_interrupted_call_does_not_move_its_block() -> None:
    measurement = timing.Measurement()
    measurement.open_set(("eager", "candidate"))
    for _ in range(9):
        measurement.add_block("eager", [2.0, 2.1, 2.0, 2.1, 2.0, 2.1, 2.0, 2.0])
        measurement.add_block("candidate", [1.0, 1.05, 1.0, 1.05, 1.0, 1.05, 1.0, 40.0])
    assert measurement.speedup("eager") == pytest.approx((2.0, 2.0, 2.0), rel=1.01 * timing.RESOLUTION)


def test_calls_on_the_same_inputs_are_compared_with_each_other() -> None:
    measurement = timing.Measurement()
    measurement.open_set(("eager", "candidate"))
    for _ in range(6):  # some inputs are more work than others, for both alike
        measurement.add_block("eager", [2.0, 8.0, 4.0, 6.0])
        measurement.add_block("candidate", [1.0, 4.0, 2.0, 3.0])
    assert measurement.speedup("eager")[0] == pytest.approx(2.0)


@settings(max_examples=40, deadline=None)
@given(
    ratios=st.lists(st.lists(st.floats(0.01, 100.0), min_size=4, max_size=4), min_size=3, max_size=12),
    factor=st.floats(0.01, 100.0),
)
def test_the_ratio_scales_turns_over_and_stays_within_its_pairs(ratios: list[list[float]], factor: float) -> None:
    value, low, high = statistics.ratio_interval([ratios])
    pairs = [ratio for block in ratios for ratio in block]
    assert min(pairs) * (1 - 1e-9) <= low <= value <= high <= max(pairs) * (1 + 1e-9)
    scaled, _, _ = statistics.ratio_interval([[[factor * ratio for ratio in block] for block in ratios]])
    assert scaled == pytest.approx(factor * value)
    over, _, _ = statistics.ratio_interval([[[1 / ratio for ratio in block] for block in ratios]])
    assert over == pytest.approx(1 / value)


def test_what_less_than_a_quarter_of_the_pairs_meet_moves_nothing() -> None:
    calm = [[1.0, 1.0, 1.0, 1.0, 1.0] for _ in range(12)]
    wild = [[1.0, 1.0, 1.0, 1.0, 50.0] for _ in range(12)]
    assert statistics.ratio_interval([wild])[0] == statistics.ratio_interval([calm])[0] == 1.0


def test_nothing_is_told_apart_below_the_resolution() -> None:
    value, low, high = statistics.widened(2.0, 2.0, 2.0, 0.004)
    assert (value, low, high) == pytest.approx((2.0, 2.0 * math.exp(-0.004), 2.0 * math.exp(0.004)))
    _, low, high = statistics.widened(1.0, 0.9, 1.2, 0.004)
    assert 0.899 < low < 0.9 and 1.2 < high < 1.201


def test_sets_follow_the_first_two_only_while_there_is_time() -> None:
    plan = timing.Plan(budget_s=9.0)
    assert plan.share_s == 2.25
    assert [plan.room_for_another(sets, 2.3 * sets) for sets in (1, 2, 3, 4)] == [True, True, True, False]
    assert not timing.Plan(budget_s=0.3).room_for_another(2, 0.3)
    assert timing.Plan(budget_s=0.3).room_for_another(1, 60.0)


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
