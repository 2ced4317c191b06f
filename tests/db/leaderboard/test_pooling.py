"""Evaluations of one candidate are pooled: asking again does not lift a figure, and its interval holds the truth."""

import math
import random
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from db.leaderboard.pooling import Speedup, is_disqualified, pool_candidate, pool_speedups
from db.leaderboard.rules import Tier
from db.records import MEASUREMENTS, Measurements
from tasks.outcomes import GIVEN_WEIGHTS
from tests.support.doc_tables import table

COVERAGE = table((Path(__file__).parents[3] / "docs" / "timing.md").read_text(), "pooled")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def around(value, relative):
    return Speedup(value, value / (1 + relative), value * (1 + relative))


widths = st.floats(1e-4, 0.5)
measured = st.builds(around, st.floats(0.01, 100.0), widths)
counted = st.builds(lambda value: Speedup(value, value, value), st.floats(0.01, 100.0))
bare = st.builds(Speedup, st.floats(0.01, 100.0))
any_speedups = st.lists(st.one_of(measured, counted, bare), min_size=1, max_size=12)


# The mean


@given(st.one_of(measured, counted, bare))
def test_one_measurement_is_itself(speedup):
    assert pool_speedups([speedup]) == speedup


@given(any_speedups, st.randoms())
def test_the_order_does_not_matter(speedups, shuffle):
    assert pool_speedups(shuffle.sample(speedups, len(speedups))) == pool_speedups(speedups)


@given(any_speedups)
def test_the_value_lies_between_the_extremes_and_within_its_interval(speedups):
    pooled = pool_speedups(speedups)
    used = [each for each in speedups if each.low is not None] or speedups
    values = [each.value for each in used]
    assert min(values) <= pooled.value <= max(values)
    if used[0].low is None:
        assert (pooled.low, pooled.high) == (None, None)
    else:
        assert 0 < pooled.low <= pooled.value <= pooled.high


@given(measured, st.integers(1, 30))
def test_equal_measurements_narrow_the_interval_by_the_root_of_their_number_and_no_more(speedup, count):
    pooled = pool_speedups([speedup] * count)
    assert pooled.value == speedup.value
    width, before = math.log(pooled.high / pooled.low), math.log(speedup.high / speedup.low)
    assert width == pytest.approx(before / math.sqrt(count))


@given(st.floats(0.01, 100.0), st.integers(1, 5))
def test_counts_that_agree_stay_exact(value, count):
    assert pool_speedups([Speedup(value, value, value)] * count) == Speedup(value, value, value)


@given(st.lists(measured, min_size=1, max_size=8), st.floats(1.001, 3.0), widths)
def test_a_lucky_measurement_moves_the_value_less_than_taking_the_best_would(speedups, luck, width):
    before = pool_speedups(speedups).value
    lucky = around(max(each.value for each in speedups) * luck, width)
    assert pool_speedups([*speedups, lucky]).value < lucky.value
    assert pool_speedups([*speedups, lucky]).value >= min(before, *(each.value for each in speedups))


@given(measured, st.floats(1.02, 2.0))
def test_measurements_that_contradict_each_other_widen_the_interval(speedup, factor):
    other = Speedup(*(each * factor for each in (speedup.value, speedup.low, speedup.high)))
    assume(other.low > speedup.high * 1.02)
    pooled = pool_speedups([speedup, other])
    assert pooled.low < speedup.value
    assert pooled.high > other.value


def test_a_precise_measurement_counts_more_than_a_vague_one_as_long_as_they_agree():
    pooled = pool_speedups([around(2.0, 0.01), around(2.1, 0.10)])
    assert pooled.value == pytest.approx(2.0, rel=0.002)
    assert math.log(pooled.high / pooled.low) < 2 * math.log(1.01)


def test_measurements_without_an_interval_count_only_among_their_like():
    assert pool_speedups([around(2.0, 0.01), Speedup(9.0)]) == around(2.0, 0.01)
    assert pool_speedups([Speedup(2.0), Speedup(8.0)]).value == pytest.approx(4.0)
    unusable = Speedup(9.0, -1.0, 9.5)
    assert pool_speedups([around(2.0, 0.01), unusable]) == around(2.0, 0.01)


def test_extremes_of_floating_point_do_not_break_it():
    pooled = pool_speedups([Speedup(1.0, 1e-300, 1e300), Speedup(1e300, 1e-300, 1e308), Speedup(1e-300, 5e-324, 1.0)])
    assert math.isfinite(pooled.value)
    assert math.isfinite(pooled.high)


# The interval


def covered(count, between, own=0.005, truth=2.0, trials=1500, seed=0):
    """How often the pooled interval holds the truth, and the best single one does.

    Args:
        count: evaluations of a candidate.
        between: the standard deviation between evaluations, relative to the value.
        own: the mean standard deviation of an evaluation that its interval tells; it varies by a factor of 2 each way.
    """
    generator = random.Random(seed)
    pooled = best = 0
    for _ in range(trials):
        found = []
        for _ in range(count):
            error = own * 2 ** generator.uniform(-1, 1)
            value = truth * math.exp(generator.gauss(0, math.hypot(error, between)))
            found.append(Speedup(value, value * math.exp(-1.96 * error), value * math.exp(1.96 * error)))
        result, luckiest = pool_speedups(found), max(found, key=lambda each: each.value)
        pooled += result.low <= truth <= result.high
        best += luckiest.low <= truth <= luckiest.high
    return pooled / trials, best / trials


@pytest.mark.parametrize(
    ("count", "between", "at_least"),
    [
        (2, 0.0, 0.94),
        (2, 0.0025, 0.92),
        (2, 0.005, 0.85),
        (2, 0.02, 0.80),
        (3, 0.0, 0.94),
        (3, 0.0025, 0.92),
        (3, 0.005, 0.88),
        (3, 0.02, 0.89),
        (10, 0.0, 0.94),
        (10, 0.0025, 0.92),
        (10, 0.005, 0.90),
        (10, 0.02, 0.92),
    ],
)
def test_the_interval_holds_the_truth_more_often_than_that_of_the_best_evaluation(count, between, at_least):
    """The table in docs/timing.md. `between` is relative to the value, next to 0.5 % of each evaluation's own."""
    pooled, best = covered(count, between)
    assert pooled >= at_least
    assert pooled > best


@pytest.mark.parametrize("count", ["2", "3", "10"])
def test_the_page_says_how_often(count):
    for between, cell in zip((0.0, 0.0025, 0.005, 0.02), COVERAGE[count], strict=True):
        said = [int(number) / 100 for number in re.findall(r"\d+", cell)]
        assert covered(int(count), between) == pytest.approx(said, abs=0.035)


def test_asking_again_does_not_raise_the_figure():
    """Of candidates that are all as fast, the best of ten evaluations would be 3 % above the truth."""
    generator = random.Random(1)
    pooled, best = [], []
    for _ in range(300):
        found = [around(2.0 * math.exp(generator.gauss(0, 0.02)), 0.01) for _ in range(10)]
        pooled.append(pool_speedups(found).value)
        best.append(max(each.value for each in found))
    assert sum(best) / 300 > 2.0 * 1.025
    assert sum(pooled) / 300 == pytest.approx(2.0, rel=0.002)


# Candidates


@dataclass
class Evaluation:
    """An evaluation as a store gives it back."""

    id: str
    speedup: float | None = 2.0
    tags: tuple[str, ...] = ("custom_kernel",)
    verdict: str = "passed"
    code: str | None = None
    retracted_at: datetime | None = None
    at: int = 0
    others: dict = field(default_factory=dict)

    @property
    def created_at(self):
        return NOW + timedelta(seconds=self.at)

    @property
    def measurements(self):
        if self.speedup is None:
            return Measurements()
        return Measurements(
            **{"speedup": self.speedup, "speedup_low": self.speedup * 0.99, "speedup_high": self.speedup * 1.01}
            | self.others
        )


def test_a_single_evaluation_keeps_its_figures_and_tags():
    only = Evaluation("a", 1.5, ("torch_only", "tie"), others={"candidate_ms": 3.0, "compile_ms": None})
    pooled = pool_candidate([only])
    assert (pooled.tier, pooled.evaluations, pooled.tags) == (Tier.RANKED, 1, ("torch_only", "tie"))
    assert pooled.measurements == only.measurements


def test_what_has_no_rank_enters_only_if_nothing_else_passed():
    noisy = Evaluation("n", 9.0, ("custom_kernel", "noisy"))
    good = [Evaluation("a", 2.0, at=1), Evaluation("b", 2.02, at=2)]
    pooled = pool_candidate([noisy, *good])
    assert (pooled.tier, pooled.evaluations, pooled.latest_id) == (Tier.RANKED, 2, "b")
    assert pooled.measurements.speedup == pytest.approx(2.01, rel=0.001)
    assert "noisy" not in pooled.tags
    alone = pool_candidate([noisy, Evaluation("m", 8.0, ("custom_kernel", "uneven"), at=1)])
    assert (alone.tier, alone.evaluations) == (Tier.UNRANKED, 2)
    assert alone.tags == ("custom_kernel", "noisy", "uneven")


def test_trials_are_never_pooled_with_anything_else():
    tried = [Evaluation("t", 3.0, ("custom_kernel", "trial")), Evaluation("u", 3.1, ("custom_kernel", "trial"), at=3)]
    for proof in (("noisy",), ("uneven",), ("cold",), ()):
        pooled = pool_candidate([*tried, Evaluation("p", 2.0, proof, at=1)])
        assert (pooled.latest_id, pooled.evaluations, pooled.tags) == ("p", 1, proof)
        assert pooled.measurements.speedup == 2.0
        assert pooled.tier == (Tier.UNRANKED if proof else Tier.RANKED)
    alone = pool_candidate(tried)
    assert (alone.tier, alone.evaluations) == (Tier.TRIED, 2)


def test_cold_caches_are_another_measurement():
    cold = Evaluation("c", 4.0, ("cold",))
    noisy = Evaluation("n", 2.0, ("noisy",))
    assert pool_candidate([cold, noisy]).measurements.speedup == 2.0
    assert pool_candidate([cold, Evaluation("d", 4.0, ("cold", "noisy"))]).measurements.speedup == 4.0


def test_times_with_inputs_of_a_shape_group_are_no_figure_of_the_candidate():
    other = Evaluation("c", 4.0, ("other_inputs",))
    assert pool_candidate([other]) is None
    assert pool_candidate([other, Evaluation("n", 2.0, ("noisy",))]).measurements.speedup == 2.0
    refused = Evaluation("w", None, ("other_inputs",), verdict="wrong_output")
    assert pool_candidate([refused, Evaluation("n", 2.0, ())]) is None, "it is wrong all the same"


@pytest.mark.parametrize("verdict", ["wrong_output", "integrity"])
def test_a_candidate_that_was_once_found_wrong_has_no_figure(verdict):
    refused = Evaluation("r", None, verdict=verdict)
    passed = [Evaluation("a"), Evaluation("b", at=1)]
    assert pool_candidate([*passed, refused]) is None
    assert is_disqualified([*passed, refused])
    refused.retracted_at = NOW
    assert pool_candidate([*passed, refused]).evaluations == 2


def test_what_is_wrong_with_the_weights_of_one_evaluation_alone_keeps_its_figure():
    passed, refused = Evaluation("a"), Evaluation("r", None, verdict="wrong_output", code=GIVEN_WEIGHTS)
    assert not is_disqualified([passed, refused])
    assert pool_candidate([passed, refused]).evaluations == 1


@pytest.mark.parametrize("verdict", ["crashed", "timed_out", "out_of_memory", "build_failed", "sandbox_error"])
def test_what_a_busy_host_can_cause_does_not_disqualify(verdict):
    assert pool_candidate([Evaluation("a"), Evaluation("f", None, verdict=verdict)]).evaluations == 1


def test_without_a_pass_there_is_no_figure():
    assert pool_candidate([]) is None
    assert pool_candidate([Evaluation("a", None), Evaluation("b", None, verdict="crashed")]) is None
    assert pool_candidate([Evaluation("a", retracted_at=NOW)]) is None


def test_tie_and_slower_follow_from_the_pooled_interval():
    near = [Evaluation("a", 0.999, ("custom_kernel", "tie")), Evaluation("b", 1.012, ("custom_kernel",), at=1)]
    assert pool_candidate(near).tags == ("custom_kernel", "tie")
    slow = [Evaluation("a", 0.985, ("custom_kernel", "slower")), Evaluation("b", 0.992, ("tie",), at=1)]
    assert pool_candidate(slow).tags == ("custom_kernel", "slower")
    fast = [Evaluation(name, 1.009, ("tie",), at=at) for at, name in enumerate("abcd")]
    assert pool_candidate(fast).tags == ()


def test_latencies_fit_the_speedup_and_missing_ones_are_left_out():
    pooled = pool_candidate(
        [
            Evaluation("a", 2.0, others={"eager_ms": 2.0, "candidate_ms": 1.0, "compile_ms": 1.5}),
            Evaluation("b", 2.1, at=1, others={"eager_ms": 4.2, "candidate_ms": 2.0, "speedup_compile": 1.25}),
        ]
    ).measurements
    assert pooled.eager_ms / pooled.candidate_ms == pytest.approx(pooled.speedup)
    assert 1.0 < pooled.candidate_ms < 2.0
    assert (pooled.compile_ms, pooled.speedup_compile, pooled.roofline_fraction) == (1.5, 1.25, None)


@given(
    st.lists(
        st.builds(
            Evaluation,
            st.text("ab", min_size=1, max_size=3),
            st.one_of(st.none(), st.floats(0.1, 10.0)),
            st.sampled_from([("custom_kernel",), ("noisy",), ("cold",), ("tie",)]),
            st.sampled_from(["passed", "passed", "passed", "crashed"]),
            st.sampled_from([None, None, NOW]),
            st.integers(0, 3),
        ),
        max_size=8,
        unique_by=lambda each: each.id,
    ),
    st.randoms(),
)
def test_the_order_of_evaluations_does_not_matter_to_the_last_bit(evaluations, shuffle):
    pooled = pool_candidate(evaluations)
    assert pool_candidate(shuffle.sample(evaluations, len(evaluations))) == pooled
    if pooled is not None:
        for name in MEASUREMENTS:
            value = getattr(pooled.measurements, name)
            assert value is None or isinstance(value, str) or math.isfinite(value)
