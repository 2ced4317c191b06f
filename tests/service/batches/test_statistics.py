"""The figures of batches: against their definitions, against counting out, and whatever the tries are."""

import itertools
import math
import random
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.batches.compare import EXACT_UP_TO, Wilcoxon, compare, mcnemar, wilcoxon
from service.batches.statistics import (
    AS_THE_REFERENCE,
    FAST_P,
    Figures,
    Sample,
    best_of,
    bootstrap_mean,
    bootstrap_means,
    estimates,
    fast_p,
    figures,
    geomean,
    group_by_task,
    is_compiled,
    is_passed,
    pass_at_k,
    rate_at_k,
    reaches,
)

SPEEDUPS = st.floats(0.05, 50, allow_nan=False)


@st.composite
def samples(draw: st.DrawFn) -> list[Sample]:
    """Tries at up to six tasks, up to four each: failed, passed with a speed, or passed without one."""
    samples = []
    for task in range(draw(st.integers(1, 6))):
        for number in range(1, draw(st.integers(1, 4)) + 1):
            passed = draw(st.booleans())
            speedup = draw(st.none() | SPEEDUPS) if passed else None
            samples.append(Sample(f"suite/{task}", number, passed or draw(st.booleans()), passed, speedup))
    return samples


def one(task: str, speedup: float | None, *, number: int = 1, passed: bool = True) -> Sample:
    return Sample(task, number, compiled=True, passed=passed, speedup=speedup)


def failed(task: str, number: int = 1) -> Sample:
    return Sample(task, number, compiled=False, passed=False)


# --- pass@k


@given(st.integers(1, 8), st.data())
def test_pass_at_k_is_the_share_of_all_choices_of_k_tries_with_one_that_passed(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    outcomes = [True] * c + [False] * (n - c)
    choices = list(itertools.combinations(outcomes, k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, choices)) / len(choices))


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4), (0, 0, 1)])
def test_pass_at_k_refuses_what_was_not_tried(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="needs 0 <= passed <= tries"):
        pass_at_k(n, c, k)


def test_pass_at_k_is_given_for_as_many_tries_as_every_task_had() -> None:
    three = [one("a", 2.0, number=number) for number in (1, 2, 3)]
    assert set(figures([*three, one("b", 2.0)]).pass_at_k) == {1}
    assert set(figures(three).pass_at_k) == {1, 2}


def test_pass_at_k_weighs_tasks_alike() -> None:
    found = figures([one("a", 2.0), *(failed("b", number) for number in range(1, 10))])
    assert found.pass_at_k == {1: 0.5}
    assert found.correctness_rate == 0.5


# --- any k


@given(samples(), st.integers(1, 4), st.sampled_from((*FAST_P[1:], AS_THE_REFERENCE, 7.0)))
def test_each_rate_at_k_is_the_share_of_tasks_over_all_choices_of_k_samples(
    samples: list[Sample], k: int, alpha: float
) -> None:
    by_task = [members for members in group_by_task(samples).values() if len(members) >= k]
    if not by_task:
        return

    def counted(sample: Sample) -> bool:  # by the words of the definition
        return sample.passed and (sample.speedup if sample.speedup is not None else AS_THE_REFERENCE) >= alpha

    for holds, by_definition in (
        (is_compiled, lambda sample: sample.compiled),
        (is_passed, lambda sample: sample.passed),
        (reaches(alpha), counted),
    ):
        shares = []
        for members in by_task:
            choices = list(itertools.combinations(members, k))
            shares.append(sum(any(by_definition(each) for each in choice) for choice in choices) / len(choices))
        assert rate_at_k(by_task, holds, k) == pytest.approx(fmean(shares))


@given(samples())
def test_more_samples_and_lower_thresholds_never_lower_a_rate(samples: list[Sample]) -> None:
    found = figures(samples, ks=range(1, 5), resamples=2)
    for by_k in (found.compile_at_k, found.pass_at_k, *found.speedup_at_k.values()):
        rates = list(by_k.values())
        assert all(earlier <= later + 1e-12 for earlier, later in itertools.pairwise(rates))
    for k, passed in found.pass_at_k.items():
        at_k = [by_k[k] for by_k in found.speedup_at_k.values()]
        assert all(one >= other - 1e-12 for one, other in itertools.pairwise(at_k))
        assert found.compile_at_k[k] >= passed - 1e-12 and passed >= at_k[0] - 1e-12


def test_with_as_many_samples_as_k_the_rate_is_the_count_that_the_paper_reports() -> None:
    tries = [one("a", 3.0), one("a", 0.5, number=2), failed("b"), one("b", 1.5, number=2), failed("c"), failed("c", 2)]
    by_task = list(group_by_task(tries).values())
    assert rate_at_k(by_task, reaches(2.0), 2) == pytest.approx(1 / 3)
    assert rate_at_k(by_task, reaches(1.0), 2) == pytest.approx(2 / 3)
    assert rate_at_k(by_task, is_compiled, 2) == pytest.approx(2 / 3)


# --- intervals


@given(samples())
def test_estimates_are_the_figures_with_intervals_that_hold_them(samples: list[Sample]) -> None:
    found, values = estimates(samples, resamples=30), figures(samples, resamples=30)
    assert found["geomean"] == values.geomean
    assert found.get("geomean_passed") == values.geomean_passed
    for k, value in values.pass_at_k.items():
        assert found[f"pass@{k}"].value == pytest.approx(value)
        assert found[f"compile@{k}"].value == pytest.approx(values.compile_at_k[k])
        for alpha, by_k in values.speedup_at_k.items():
            assert found[f"SpeedUp_{alpha:g}@{k}"].value == pytest.approx(by_k[k])
    for p, value in values.fast_p.items():
        assert found[f"fast_{p:g}"].value == pytest.approx(value)
    for each in found.values():
        if values.tasks == 1:
            assert (each.low, each.high) == (None, None)
        elif each.low is not None and each.high is not None:
            assert each.low <= each.value * (1 + 1e-9) and each.high >= each.value * (1 - 1e-9)


def test_nothing_tried_has_no_estimates() -> None:
    assert estimates([]) == {}


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=12), st.integers(0, 5))
def test_columns_are_drawn_together_and_each_as_if_alone(rows: list[tuple[float, float]], seed: int) -> None:
    columns = [[a for a, _ in rows], [b for _, b in rows]]
    assert bootstrap_means(columns, resamples=40, seed=seed) == [
        bootstrap_mean(column, resamples=40, seed=seed) for column in columns
    ]


def test_a_rate_interval_covers_the_rate_over_new_tasks_and_samples_about_as_often_as_it_says() -> None:
    rng = random.Random(11)
    hits = 0
    for trial in range(150):  # tasks differ in how often a sample passes: on the mean, 1/2
        tries = []
        for task in range(40):
            chance = rng.random()
            tries += [
                one(str(task), 2.0, number=n) if rng.random() < chance else failed(str(task), n) for n in (1, 2, 3)
            ]
        interval = estimates(tries, ks=(1,), ps=(), resamples=300, seed=trial)["pass@1"]
        assert interval.low is not None and interval.high is not None
        hits += interval.low <= 0.5 <= interval.high
    assert 0.89 <= hits / 150 <= 0.99


# --- fast_p and SpeedUp_α


def test_fast_p_is_the_share_of_all_tasks_that_are_correct_and_faster_than_p() -> None:
    samples = [one("a", 0.7), one("b", 1.0), one("c", 1.6), one("d", 3.0), failed("e")]
    assert figures(samples).fast_p == {0.0: 0.8, 0.5: 0.8, 0.8: 0.6, 1.0: 0.4, 1.5: 0.4, 2.0: 0.2}


def test_speedup_at_1_counts_the_threshold_itself_and_fast_p_does_not() -> None:
    found = figures([one("a", 1.0), one("b", 2.0), failed("c"), failed("d")])
    assert (found.fast_p[1.0], found.speedup_at_k[1.0][1]) == (0.25, 0.5)
    assert (found.fast_p[2.0], found.speedup_at_k[2.0][1]) == (0.0, 0.25)


def test_a_correct_kernel_whose_times_do_not_count_is_as_fast_as_the_reference_in_every_figure() -> None:
    found = figures([one("a", None)])
    assert found.fast_p == {p: float(p < 1) for p in FAST_P}
    assert found.speedup_at_k == {alpha: {1: float(alpha < 1)} for alpha in FAST_P if alpha > 0}
    assert (found.share_failed, found.share_without_speedup) == (0.0, 1.0)
    assert (found.median, found.median_passed) == (1.0, 1.0)
    for mean in (found.geomean, found.geomean_passed):
        assert mean is not None and mean.value == 1.0
    assert best_of([one("a", None), one("a", 0.5, number=2), one("a", 1.0, number=3)])[0].number == 3
    assert best_of([one("a", None), one("a", 0.5, number=2)])[0].number == 1


@given(samples())
def test_times_that_do_not_count_give_the_figures_of_the_reference_itself(samples: list[Sample]) -> None:
    mended = [replace(each, speedup=each.speed) for each in samples]
    found, expected = figures(samples, resamples=20), figures(mended, resamples=20)
    assert found.fast_p == expected.fast_p
    assert found.speedup_at_k == expected.speedup_at_k
    assert found.median == pytest.approx(expected.median) and found.median_passed == pytest.approx(
        expected.median_passed
    )
    for mean, other in ((found.geomean, expected.geomean), (found.geomean_passed, expected.geomean_passed)):
        assert (mean is None) == (other is None)
        assert mean is None or other is None or mean.value == pytest.approx(other.value)


@given(samples())
def test_fast_p_never_rises_with_p_and_never_exceeds_speedup_at_1(samples: list[Sample]) -> None:
    by_task = list(group_by_task(samples).values())
    values = [fast_p(by_task, p) for p in FAST_P]
    assert values == sorted(values, reverse=True)
    assert all(fast_p(by_task, p) <= rate_at_k(by_task, reaches(p), 1) + 1e-12 for p in FAST_P if p > 0)


# --- means and their failure rule


def test_a_failed_task_counts_as_one_in_the_mean_and_not_at_all_in_that_of_the_passed() -> None:
    found = figures([one("a", 4.0), failed("b")])
    assert found.geomean is not None and found.geomean.value == pytest.approx(2.0)
    assert found.geomean_passed is not None and found.geomean_passed.value == pytest.approx(4.0)
    assert found.median == pytest.approx(2.0)
    assert found.median_passed == pytest.approx(4.0)
    assert (found.share_failed, found.share_without_speedup) == (0.5, 0.5)


def test_a_slower_kernel_counts_as_what_it_is() -> None:
    found = figures([one("a", 0.25), failed("b")])
    assert found.geomean is not None and found.geomean.value == pytest.approx(0.5)


@given(samples())
def test_figures_hold_together_whatever_the_tries_are(samples: list[Sample]) -> None:
    found = figures(samples, resamples=50)
    shares = (found.compile_rate, found.correctness_rate, found.share_failed, found.share_without_speedup)
    assert all(share is not None and 0 <= share <= 1 for share in shares)
    assert found.correctness_rate is not None and found.compile_rate is not None
    assert found.correctness_rate <= found.compile_rate + 1e-12
    assert found.correctness_rate + (found.share_failed or 0.0) == pytest.approx(1)
    assert found.pass_at_k[1] == pytest.approx(found.correctness_rate)
    assert found.geomean is not None
    speeds = [sample.speedup or 1.0 for sample in samples]
    assert min(speeds) * (1 - 1e-9) <= found.geomean.value <= max(speeds) * (1 + 1e-9)
    if found.geomean.low is not None and found.geomean.high is not None:
        assert found.geomean.low <= found.geomean.value * (1 + 1e-9)
        assert found.geomean.high >= found.geomean.value * (1 - 1e-9)


@given(samples(), st.randoms(use_true_random=False))
def test_the_order_of_tries_changes_nothing(samples: list[Sample], rng: random.Random) -> None:
    mixed = samples.copy()
    rng.shuffle(mixed)
    assert figures(mixed, resamples=50) == figures(samples, resamples=50)


@given(samples())
def test_the_best_of_several_tries_is_never_worse_than_a_single_one(samples: list[Sample]) -> None:
    single, best = figures(samples, resamples=20), figures(best_of(samples), resamples=20)
    assert best.samples == best.tasks == single.tasks
    assert all(best.fast_p[p] >= single.fast_p[p] - 1e-12 for p in FAST_P)
    assert (best.correctness_rate or 0) >= (single.correctness_rate or 0) - 1e-12


def test_nothing_tried_has_no_figures() -> None:
    assert figures([]) == Figures()


def test_one_task_has_no_interval() -> None:
    found = geomean([0.5])
    assert (found.low, found.high) == (None, None)
    with pytest.raises(ValueError, match="nothing"):
        geomean([])


def test_the_bootstrap_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = random.Random(7)
    hits = 0
    for trial in range(200):
        values = [rng.gauss(0.3, 0.5) for _ in range(40)]
        low, high = bootstrap_mean(values, resamples=400, seed=trial)
        hits += low <= 0.3 <= high
    assert 0.90 <= hits / 200 <= 0.99


@pytest.mark.parametrize(
    ("compiled", "passed", "speedup"),
    [(False, True, None), (True, False, 2.0), (True, True, 0.0), (True, True, -1.0), (True, True, math.inf)],
)
def test_a_try_that_cannot_be_is_refused(compiled: bool, passed: bool, speedup: float | None) -> None:
    with pytest.raises(ValueError, match="a sample 1"):
        Sample("a", 1, compiled, passed, speedup)


def test_a_speedup_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="did not earn it"):
        Sample("a", 1, compiled=True, passed=True, speedup=math.nan)


# --- paired comparison


def _by_counting(differences: list[float]) -> float:
    """Wilcoxon's two-sided p over all sign patterns, from the definition."""
    signed = [difference for difference in differences if difference != 0]
    sizes = sorted(map(abs, signed))
    rank = {size: (sizes.index(size) + 1 + len(sizes) - sizes[::-1].index(size)) / 2 for size in sizes}
    ranks = [rank[abs(difference)] for difference in signed]
    seen = sum(r for r, difference in zip(ranks, signed, strict=True) if difference > 0)
    middle = sum(ranks) / 2
    patterns = list(itertools.product((0, 1), repeat=len(ranks)))
    far = sum(
        abs(sum(r for r, plus in zip(ranks, p, strict=True) if plus) - middle) >= abs(seen - middle) for p in patterns
    )
    return far / len(patterns)


@given(st.lists(st.integers(-5, 5).map(float), max_size=9))
def test_wilcoxon_counts_every_pattern_of_signs_also_with_ties_and_zeros(differences: list[float]) -> None:
    found = wilcoxon(differences)
    assert found.exact
    assert found.zeros == differences.count(0.0)
    assert found.n + found.zeros == len(differences)
    assert found.p == pytest.approx(_by_counting(differences))


@given(st.lists(st.floats(-3, 3, allow_nan=False), max_size=40))
def test_wilcoxon_does_not_care_which_side_comes_first(differences: list[float]) -> None:
    found, turned = wilcoxon(differences), wilcoxon([-difference for difference in differences])
    assert 0 < found.p <= 1
    assert turned.p == pytest.approx(found.p)
    assert turned.w_plus + found.w_plus == pytest.approx(found.n * (found.n + 1) / 2)


def test_wilcoxon_knows_a_textbook_value() -> None:
    # Six differences, all of one sign: 2 of the 64 patterns are as extreme.
    assert wilcoxon([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == Wilcoxon(6, 0, 21.0, 2 / 64, exact=True)


def test_the_approximation_for_many_tasks_is_close_to_counting() -> None:
    rng = random.Random(3)
    for _ in range(5):
        differences = [rng.gauss(0.15, 1) for _ in range(EXACT_UP_TO)]
        exact, approximate = wilcoxon(differences), wilcoxon([*differences, 1e-9])
        assert exact.exact and not approximate.exact
        assert approximate.p == pytest.approx(exact.p, abs=0.02)


def test_wilcoxon_refuses_what_is_no_number() -> None:
    with pytest.raises(ValueError, match="not finite"):
        wilcoxon([1.0, math.nan])


def test_mcnemar_knows_a_textbook_value() -> None:
    # Eight tasks differ, one of them against the rest: 2 (1 + 8) / 256.
    pairs = [(True, False)] * 7 + [(False, True)] + [(True, True)] * 4 + [(False, False)] * 3
    found = mcnemar(pairs)
    assert (found.both, found.only_a, found.only_b, found.neither) == (4, 7, 1, 3)
    assert found.p == pytest.approx(18 / 256)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40))
def test_mcnemar_is_a_probability_and_does_not_care_which_side_comes_first(pairs: list[tuple[bool, bool]]) -> None:
    found, turned = mcnemar(pairs), mcnemar([(b, a) for a, b in pairs])
    assert 0 < found.p <= 1
    assert turned.p == found.p
    assert found.both + found.only_a + found.only_b + found.neither == len(pairs)


def test_a_comparison_pairs_tasks_and_names_those_that_one_side_lacks() -> None:
    found = compare([one("a", 4.0), one("b", 2.0), one("x", 9.0)], [one("a", 2.0), failed("b"), one("y", 9.0)])
    assert found.n == 2
    assert dict(found.tasks) == {"a": pytest.approx(2.0), "b": pytest.approx(2.0)}
    assert found.ratio is not None and found.ratio.value == pytest.approx(2.0)
    assert (found.missing_in_a, found.missing_in_b) == (("y",), ("x",))
    assert (found.passes.only_a, found.passes.both) == (1, 1)


def test_a_side_with_more_tries_has_no_more_chances() -> None:
    many = [failed("a", 1), one("a", 8.0, number=2), one("a", 8.0, number=3)]
    found = compare(many, [one("a", 2.0)])
    assert found.passes.only_b == 1
    assert found.ratio is not None and found.ratio.value == pytest.approx(0.5)


def test_nothing_in_common_compares_to_nothing() -> None:
    found = compare([one("a", 2.0)], [one("b", 2.0)])
    assert (found.n, found.ratio, found.faster.p, found.passes.p) == (0, None, 1.0, 1.0)


@given(samples())
def test_a_set_compared_with_itself_is_the_same(samples: list[Sample]) -> None:
    found = compare(samples, samples, resamples=20)
    assert found.ratio is not None and found.ratio.value == pytest.approx(1.0)
    assert found.faster.p == 1.0 and found.passes.p == 1.0
    assert not found.missing_in_a and not found.missing_in_b
