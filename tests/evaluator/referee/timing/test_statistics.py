"""What paired ratios come to, and their bootstrap intervals."""

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.referee.timing import call_times, statistics
from evaluator.referee.timing.whole_turns import Evenness, Turn

times = st.lists(st.floats(1e-6, 10.0), min_size=3, max_size=20)


def add_round(measurement: call_times.Measurement, **calls_s: list[float]) -> None:
    """One turn of each variant, whose untimed call takes as long as its timed ones."""
    measurement.add_round({variant: [Turn(tuple(each), statistics.median(each))] for variant, each in calls_s.items()})


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
        _, low, high = statistics.ratio_interval([[[value] for value in group] for group in groups], resamples=400)
        held += low <= 1.0 <= high
    assert held >= 180


@pytest.mark.parametrize(
    ("apart", "truth", "least"),
    [
        *[(0.0, 1.0, 194), (0.003, 1.0, 190), (0.005, 1.0, 188), (0.02, 1.0, 164)],
        *[(0.003, 1.5, 190), (0.02, 2.0, 164), (0.03, 2.0, 164), (0.003, 4.0, 190)],
    ],
)
def test_it_does_so_where_each_set_of_processes_is_a_little_faster_or_slower(
    apart: float, truth: float, least: int
) -> None:
    """As the referee does it: a third set and more, up to six, only where two leave the interval wide."""
    rng, held = random.Random(11), 0
    for _ in range(200):
        measurement, sets = call_times.Measurement(), 0
        while sets < 2 or (sets < 6 and not measurement.precise(call_times.Plan())):
            sets += 1
            measurement.open_set(("eager", "candidate"))
            own = math.log(truth) + rng.gauss(0.0, apart)
            for _ in range(12):
                add_round(
                    measurement,
                    eager=[math.exp(rng.gauss(own, 0.02)) for _ in range(5)],
                    candidate=[math.exp(rng.gauss(0.0, 0.01)) for _ in range(5)],
                )
        _, low, high = measurement.speedup("eager", resamples=400)
        held += low <= truth <= high
    assert held >= least


def test_a_short_set_does_not_widen_what_long_ones_have_shown() -> None:
    rng = random.Random(3)

    def rounds(count: int) -> list[list[float]]:
        return [[math.exp(rng.gauss(0.0, 0.03)) for _ in range(5)] for _ in range(count)]

    three = [rounds(40) for _ in range(3)]
    _, low, high = statistics.ratio_interval(three)
    _, lower, higher = statistics.ratio_interval([*three, rounds(6)])
    assert higher - lower < 1.3 * (high - low)


def test_one_wild_block_does_not_move_the_speedup() -> None:
    measurement = call_times.Measurement(set_sd=0.0)
    measurement.open_set(("eager", "candidate"))
    for block in range(9):
        add_round(measurement, eager=[2.0, 2.0], candidate=[1.0, 1.0 if block else 500.0])
    value, low, _ = measurement.speedup("eager")
    assert value == pytest.approx(2.0)
    assert low == pytest.approx(2.0, rel=1.01 * call_times.RESOLUTION)


def test_one_interrupted_call_does_not_move_its_block() -> None:
    measurement = call_times.Measurement(set_sd=0.0)
    measurement.open_set(("eager", "candidate"))
    for _ in range(9):
        add_round(
            measurement,
            eager=[2.0, 2.1, 2.0, 2.1, 2.0, 2.1, 2.0, 2.0],
            candidate=[1.0, 1.05, 1.0, 1.05, 1.0, 1.05, 1.0, 40.0],
        )
    assert measurement.speedup("eager") == pytest.approx((2.0, 2.0, 2.0), rel=1.01 * call_times.RESOLUTION)


def test_one_process_set_shows_nothing_of_how_sets_differ_so_that_is_assumed() -> None:
    measurement = call_times.Measurement()
    measurement.open_set(("eager", "candidate"))
    for _ in range(9):
        add_round(measurement, eager=[2.0, 2.0], candidate=[1.0, 1.0])
    _, low, high = measurement.speedup("eager")
    assert low <= 2.0 / 1.0196 and high >= 2.0 * 1.0196


def test_calls_on_the_same_inputs_are_compared_with_each_other() -> None:
    measurement = call_times.Measurement()
    measurement.open_set(("eager", "candidate"))
    for _ in range(6):  # some inputs are more work than others, for both alike
        add_round(measurement, eager=[2.0, 8.0, 4.0, 6.0], candidate=[1.0, 4.0, 2.0, 3.0])
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
    plan = call_times.Plan(budget_s=9.0)
    assert plan.share_s == 0.5
    assert [plan.room_for_another(sets, 3.0 * sets) for sets in (1, 2, 3, 4)] == [True, True, False, False]
    assert not call_times.Plan(budget_s=0.3).room_for_another(2, 1.0)
    assert call_times.Plan(budget_s=0.3).room_for_another(1, 90.0)
    patient = call_times.Plan(budget_s=600.0)
    assert patient.room_for_another(23, 40.0) and not patient.room_for_another(24, 48.0)


def test_no_set_begins_that_the_sandboxs_time_would_cut_off() -> None:
    plan = call_times.Plan(budget_s=600.0, wall_s=300.0)
    assert plan.room_for_another(2, 100.0)
    assert not plan.room_for_another(2, 200.0), "another 100 s and half as much again would be too late"


@pytest.mark.parametrize(
    ("speedup", "width"),
    [(1.0, 0.025), (1.05, 0.025), (1.2, 0.0456), (1 / 1.2, 0.0456), (1.5, 0.1014), (3.0, 0.2), (40.0, 0.2)],
)
def test_a_gain_is_wanted_to_an_eighth_of_itself_but_to_1_25_percent_at_best_and_10_at_worst(
    speedup: float, width: float
) -> None:
    assert call_times.Plan().wanted_width(speedup) == pytest.approx(width, rel=1e-3)
    assert call_times.Plan(precision=0.01).wanted_width(speedup) == 0.01


@pytest.mark.parametrize(
    ("ratio", "spread", "enough"), [(1.0, 0.003, True), (1.0, 0.03, False), (3.0, 0.03, True), (3.0, 0.4, False)]
)
def test_what_is_far_from_one_needs_a_less_narrow_interval(ratio: float, spread: float, enough: bool) -> None:
    measurement = call_times.Measurement()
    rng = random.Random(5)
    for _ in range(3):
        measurement.open_set(("eager", "candidate"))
        for _ in range(6):
            add_round(
                measurement, eager=[ratio * math.exp(rng.gauss(0.0, spread)) for _ in range(4)], candidate=[1.0] * 4
            )
    assert measurement.precise(call_times.Plan()) is enough


def test_calls_that_are_slow_now_and_then_are_uneven() -> None:
    def measured(candidate: list[float]) -> call_times.Measurement:
        measurement = call_times.Measurement()
        for _ in range(3):
            measurement.open_set(("eager", "candidate"))
            for _ in range(3):
                add_round(measurement, eager=[2.0, 2.1, 2.0, 2.4], candidate=candidate)
        return measurement

    assert measured([1.0, 1.05, 1.0, 1.2]).evenness() == Evenness.EVEN
    assert measured([1.0, 1.0, 1.0, 2.0]).evenness() == Evenness.UNEVEN
    assert measured([1.0] * 23 + [40.0]).evenness() == Evenness.UNEVEN
    assert measured([1.0] * 23 + [2.0]).evenness() == Evenness.EVEN


def test_calls_that_leave_it_unclear_whether_they_are_even_do_not_tell_enough() -> None:
    def measured(slow: tuple[int, ...], seed: int) -> call_times.Measurement:
        measurement = call_times.Measurement(seed=seed)
        measurement.open_set(("eager", "candidate"))
        for number in range(12):
            add_round(measurement, eager=[2.0] * 4, candidate=[3.0 if number in slow else 1.0] * 4)
        return measurement

    plan = call_times.Plan(target_width=10.0, precision=10.0)
    for seed in range(10):
        assert measured((0,), seed).told(plan)
        unclear = measured((0, 5), seed)
        assert unclear.precise(plan)
        assert unclear.evenness() == Evenness.UNCLEAR
        assert not unclear.told(plan)


@pytest.mark.parametrize(
    ("handovers_s", "too_short"),
    [((0.1, 0.1), False), ((0.6, 0.6), True), ((0.6, 0.1), True), ((0.6, 0.1, 0.1), False)],
)
def test_a_call_is_too_short_for_the_hand_overs_of_its_own_sets(
    handovers_s: tuple[float, ...], too_short: bool
) -> None:
    measurement = call_times.Measurement()
    for handover_s in handovers_s:
        measurement.open_set(("eager", "candidate"), handover_s)
        add_round(measurement, eager=[1.0, 1.0], candidate=[1.0, 1.0])
    assert measurement.too_short() is too_short


def test_a_set_that_is_dropped_leaves_nothing_behind() -> None:
    measurement = call_times.Measurement()
    for ready_s in (0.1, 9.0):
        measurement.open_set(("eager", "candidate"), 0.1)
        for _ in range(6):
            turns = {"eager": [Turn((1.0,) * 4, 1.0, 0.1)], "candidate": [Turn((1.0,) * 4, 1.0, ready_s)]}
            measurement.add_round(turns)
    assert measurement.evenness() == Evenness.UNEVEN
    measurement.drop_set()
    assert measurement.evenness() == Evenness.EVEN
    assert measurement.handovers_s == [0.1]
    assert measurement.calls("candidate") == [[1.0] * 24]


def test_every_order_is_followed_by_its_mirror_image() -> None:
    orders = list(itertools.islice(call_times.orders(("eager", "compile", "candidate"), random.Random(1)), 8))
    for first, second in zip(orders[::2], orders[1::2], strict=True):
        assert second == tuple(reversed(first))
        assert sorted(first) == ["candidate", "compile", "eager"]
