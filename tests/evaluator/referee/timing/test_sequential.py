"""The sequential test that decides which of two candidates is faster: its error rates, by simulation."""

import math
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.timing.sequential import (
    EARLY_LOOKS,
    LOOKS,
    SET_SD,
    SETS,
    Decision,
    TrialResult,
    compare,
    is_worth_more,
    mean_and_error,
)

PAIRS_MIN = 24
FIRST_PAIRS = 12
RUNS = 400
STARTED_S, PAIR_S = 0.8, 0.025  # as on a machine of two cores, where a call takes 1 ms


def trial(rng: random.Random, *, faster: float, set_sd: float, pair_sd: float, interrupted: float = 0.0) -> TrialResult:
    """One trial: pairs scatter by `pair_sd`, sets by `set_sd`; a share of the calls is interrupted for a long time."""
    sets: list[list[float]] = []

    def pairs(shift: float, count: int) -> list[float]:
        logs = [shift + rng.gauss(0, pair_sd) for _ in range(count)]
        return [math.exp(log + (rng.random() < interrupted) * rng.choice((-1, 1))) for log in logs]

    while True:
        shift = math.log(faster) + rng.gauss(0, set_sd)
        sets.append(pairs(shift, PAIRS_MIN if sets else FIRST_PAIRS))
        looks = [FIRST_PAIRS << number for number in range(EARLY_LOOKS)] if len(sets) == 1 else []
        while True:
            if len(sets[-1]) in looks and (found := compare(sets)).decision is not Decision.OPEN:
                return found
            measured_s = PAIR_S * len(sets[-1])
            if not is_worth_more(sets[-1], set_sd=SET_SD, measured_s=measured_s, started_s=STARTED_S):
                break
            sets[-1] += pairs(shift, 4)
        found = compare(sets)
        if found.decision is not Decision.OPEN or len(sets) == SETS:
            return found


def rates(**how: float) -> tuple[dict[Decision, float], float]:
    """How often each decision is made, and the process sets that it takes on average."""
    rng = random.Random(repr(sorted(how.items())))
    found = [trial(rng, **how) for _ in range(RUNS)]
    return {each: fmean(one.decision is each for one in found) for each in Decision}, fmean(one.sets for one in found)


QUIET = {"set_sd": 0.005, "pair_sd": 0.02}
USUAL = {"set_sd": SET_SD, "pair_sd": 0.05}
BUSY = {"set_sd": 0.02, "pair_sd": 0.15, "interrupted": 0.1}


@pytest.mark.parametrize("host", [QUIET, USUAL], ids=["quiet", "usual"])
def test_of_equal_candidates_none_is_called_better_but_in_five_of_a_hundred_trials(host: dict[str, float]) -> None:
    decided, _ = rates(faster=1.0, **host)
    assert decided[Decision.BETTER] + decided[Decision.WORSE] <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / RUNS)


def test_where_sets_differ_twice_as_much_as_assumed_it_errs_at_most_in_a_fourth() -> None:
    """The assumed deviation is a lower bound, and few sets show little of a larger one."""
    decided, _ = rates(faster=1.0, **BUSY)
    assert decided[Decision.BETTER] + decided[Decision.WORSE] <= 0.25


@pytest.mark.parametrize(("set_sd", "wrong"), [(0.015, 0.12), (0.02, 0.24)])
def test_it_errs_where_sets_differ_more_than_assumed_as_often_as_the_docs_say(set_sd: float, wrong: float) -> None:
    """Pairs that tell a set's mean to 0.5 %, as they do when a set ends."""
    decided, _ = rates(faster=1.0, set_sd=set_sd, pair_sd=0.005 * math.sqrt(PAIRS_MIN) / 1.1)
    assert decided[Decision.BETTER] + decided[Decision.WORSE] == pytest.approx(wrong, abs=0.06)


@pytest.mark.parametrize("host", [QUIET, USUAL], ids=["quiet", "usual"])
def test_five_percent_are_found_at_once(host: dict[str, float]) -> None:
    faster, sets = rates(faster=1.05, **host)
    slower, _ = rates(faster=1 / 1.05, **host)
    assert faster[Decision.BETTER] >= 0.97
    assert slower[Decision.WORSE] >= 0.97
    assert sets <= 2.0


def test_two_percent_are_found_more_often_than_they_are_missed_and_never_turned_round() -> None:
    found, _ = rates(faster=1.02, **QUIET)
    assert found[Decision.BETTER] >= 0.5
    assert found[Decision.WORSE] <= 0.01


def test_equal_candidates_are_alike_after_a_few_sets() -> None:
    found, sets = rates(faster=1.0, **QUIET)
    assert found[Decision.ALIKE] >= 0.9
    assert sets <= 4.0


def test_a_set_is_measured_for_longer_the_more_its_pairs_scatter() -> None:
    rng = random.Random(3)
    seconds = []
    for pair_sd in (0.01, 0.05, 0.1):
        pairs = [math.exp(rng.gauss(0, pair_sd)) for _ in range(FIRST_PAIRS)]
        while is_worth_more(pairs, set_sd=SET_SD, measured_s=PAIR_S * len(pairs), started_s=STARTED_S):
            pairs.append(math.exp(rng.gauss(0, pair_sd)))
        seconds.append(PAIR_S * len(pairs))
    assert seconds == sorted(seconds)
    assert seconds[0] == PAIR_S * FIRST_PAIRS
    # where c n² = C v / SET_SD², with the error of an interquartile mean about 1.2 times a mean's
    assert seconds[-1] == pytest.approx(1.2 * 0.1 / SET_SD * math.sqrt(STARTED_S * PAIR_S), rel=0.5)


@given(st.lists(st.lists(st.floats(0.01, 100), min_size=2, max_size=40), min_size=1, max_size=LOOKS))
def test_who_is_better_is_the_other_way_round_from_the_other_side(sets: list[list[float]]) -> None:
    one, other = compare(sets), compare([[1 / ratio for ratio in pairs] for pairs in sets])
    assert one.value == pytest.approx(1 / other.value)
    assert one.low == pytest.approx(1 / other.high)
    turned = {Decision.BETTER: Decision.WORSE, Decision.WORSE: Decision.BETTER}
    assert one.decision is turned.get(other.decision, other.decision)


@given(st.lists(st.floats(-5, 5), min_size=8, max_size=40), st.floats(-3, 3))
def test_the_error_of_the_middle_mean_does_not_depend_on_where_the_values_lie(values: list[float], by: float) -> None:
    mean, error = mean_and_error(values)
    moved_mean, moved_error = mean_and_error([value + by for value in values])
    assert moved_mean == pytest.approx(mean + by, abs=1e-9)
    assert moved_error == pytest.approx(error, abs=1e-9)


def test_a_few_interruptions_move_neither_mean_nor_error_much() -> None:
    rng = random.Random(7)
    values = [rng.gauss(0, 0.01) for _ in range(PAIRS_MIN)]
    mean, error = mean_and_error(values)
    hit_mean, hit_error = mean_and_error([5.0, 4.0, *values[2:]])
    assert abs(hit_mean - mean) < 0.005
    assert hit_error < 3 * error


def test_nothing_to_compare_by_is_refused() -> None:
    with pytest.raises(ValueError, match="no ratios"):
        compare([])
    with pytest.raises(ValueError, match="no ratios"):
        compare([[1.0, 1.1], []])
