"""Whether slow calls are a candidate's own: work put off is found, interruptions are told from it or are unclear."""

import random
from collections.abc import Callable

import pytest

from evaluator.referee.timing.outliers import Evenness, judge

Times = Callable[[random.Random, int], float]  # of the call with this number
Rounds = dict[str, list[list[float]]]


def measured(seed: int, rounds: int, **variants: Times) -> Rounds:
    """Rounds of four calls of each variant."""
    rng = random.Random(seed)
    return {
        name: [[times(rng, 4 * number + call) for call in range(4)] for number in range(rounds)]
        for name, times in variants.items()
    }


def found(rounds: int, repeats: int = 100, **variants: Times) -> dict[Evenness, int]:
    """How often each verdict was given."""
    verdicts = [judge(measured(seed, rounds, **variants), seed=seed) for seed in range(repeats)]
    return {verdict: verdicts.count(verdict) for verdict in Evenness}


def calm(call_ms: float) -> Times:
    return lambda rng, _: call_ms * rng.lognormvariate(0.0, 0.05)


def interrupted(call_ms: float, often: float) -> Times:
    """The machine takes the processor away for 4 ms at times, from whoever runs."""
    return lambda rng, _: call_ms * rng.lognormvariate(0.0, 0.05) + (rng.random() < often) * 4.0


def paying(call_ms: float, every: int, factor: float) -> Times:
    return lambda rng, number: call_ms * rng.lognormvariate(0.0, 0.05) * (factor if number % every == 0 else 1.0)


@pytest.mark.parametrize("rounds", [12, 60, 300])
def test_even_calls_are_even(rounds: int) -> None:
    assert found(rounds, eager=calm(0.24), candidate=calm(0.16))[Evenness.EVEN] == 100


@pytest.mark.parametrize(("every", "factor"), [(5, 3.0), (10, 5.0), (20, 20.0), (30, 40.0)])
def test_one_that_pays_now_and_then_is_uneven(every: int, factor: float) -> None:
    """With few calls it may be unclear, which gets no rank either; more tell."""
    payer = paying(0.6, every, factor)
    assert found(40, eager=calm(1.0), candidate=payer)[Evenness.EVEN] <= 8
    assert found(120, repeats=40, eager=calm(1.0), candidate=payer)[Evenness.UNEVEN] == 40


@pytest.mark.parametrize("factor", [3.0, 5.0, 20.0])
def test_one_that_pays_in_every_other_call_is_uneven(factor: float) -> None:
    """Its median lies between both kinds of calls, its mean of logarithms below what they take together."""
    assert found(14, eager=calm(1.0), candidate=paying(0.6, 2, factor))[Evenness.EVEN] <= 2
    assert found(40, repeats=40, eager=calm(1.0), candidate=paying(0.6, 2, factor))[Evenness.UNEVEN] >= 38


@pytest.mark.parametrize("rounds", [12, 18, 40])
def test_one_that_pays_in_few_rounds_only_does_not_pass_for_even(rounds: int) -> None:
    """All calls of each sixth round: it can count its calls, so rounds are no secret."""

    def clustered(rng: random.Random, number: int) -> float:
        return rng.lognormvariate(0.0, 0.05) * (3.0 if number // 4 % 6 == 0 else 1.0)

    assert found(rounds, repeats=40, eager=calm(1.0), compile=calm(1.0), candidate=clustered)[Evenness.EVEN] == 0


@pytest.mark.parametrize(
    ("call_ms", "often", "even", "uneven"),
    [(0.16, 0.01, 95, 0), (0.16, 0.03, 60, 15), (0.8, 0.03, 95, 2), (0.8, 0.06, 85, 5)],
)
def test_interruptions_that_meet_all_alike_seldom_make_one_uneven(
    call_ms: float, often: float, even: int, uneven: int
) -> None:
    machine = {"eager": interrupted(0.24, often), "compile": interrupted(0.24, often)}
    verdicts = found(50, **machine, candidate=interrupted(call_ms, often))
    assert verdicts[Evenness.EVEN] >= even
    assert verdicts[Evenness.UNEVEN] <= uneven


def test_a_machine_that_hides_as_much_as_the_call_takes_is_unclear() -> None:
    """A short candidate, slow in a fifth of its calls, beside a long baseline that is interrupted more than it."""
    long = interrupted(3.0, 0.075)

    def slow(rng: random.Random, _: int) -> float:
        return 0.2 * rng.lognormvariate(0.0, 0.05) + (rng.random() < 0.2) * 0.7

    assert found(60, eager=long, candidate=slow)[Evenness.EVEN] <= 5
    assert found(60, eager=long, candidate=lambda rng, call: 2 * slow(rng, call))[Evenness.EVEN] <= 5


def test_what_only_one_baseline_shows_excuses_nobody() -> None:
    def bimodal(rng: random.Random, _: int) -> float:
        return rng.lognormvariate(0.0, 0.05) * (3.0 if rng.random() < 0.25 else 1.0)

    verdicts = found(60, eager=calm(2.0), compile=bimodal, candidate=paying(0.2, 5, 3.0))
    assert verdicts[Evenness.UNEVEN] >= 95


def test_inputs_that_are_more_work_for_all_make_nobody_uneven() -> None:
    """A quarter of the inputs cost every variant four times as much."""

    def task(call_ms: float) -> Times:
        return lambda rng, number: call_ms * rng.lognormvariate(0.0, 0.05) * (4.0 if number % 4 == 1 else 1.0)

    verdicts = found(60, eager=task(3.0), compile=task(2.0), candidate=task(0.3))
    assert verdicts[Evenness.EVEN] == 100


def test_the_verdict_of_the_same_calls_is_the_same() -> None:
    rounds = measured(3, 30, eager=interrupted(0.24, 0.03), candidate=interrupted(0.16, 0.06))
    assert judge(rounds, seed=5) == judge(rounds, seed=5)
