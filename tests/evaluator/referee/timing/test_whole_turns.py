"""Whether slow calls are a candidate's own: work put off is found, interruptions are told from it or are unclear."""

import random
from collections.abc import Callable

import pytest

from evaluator.referee.timing.whole_turns import Evenness, Turn, judge, uncounted

Times = Callable[[random.Random, int], float]  # of the call with this number, in milliseconds
Rounds = list[list[Turn]]


def measured(seed: int, rounds: int, **variants: Times) -> dict[str, list[Rounds]]:
    """Rounds of two turns of each variant in one process set; a turn has an untimed call and two timed ones."""
    rng = random.Random(seed)
    return {
        name: [[[turn(rng, 6 * number + at, times) for at in (0, 3)] for number in range(rounds)]]
        for name, times in variants.items()
    }


def turn(rng: random.Random, first: int, times: Times) -> Turn:
    untimed_ms, *calls_ms = (times(rng, first + index) for index in range(3))
    return Turn(tuple(call_ms / 1e3 for call_ms in calls_ms), untimed_ms / 1e3)


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
    [(0.16, 0.01, 95, 0), (0.16, 0.03, 55, 20), (0.8, 0.03, 90, 2), (0.8, 0.06, 90, 2)],
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


def prepares(untimed_s: float = 1.0, ready_s: float = 0.1, *, share: float = 1.0, threads: int = 1) -> Evenness:
    """The verdict where in a share of the turns the untimed call, or getting ready for all calls, takes so long.

    Each turn has four timed calls of 1 s; eager's take 2 s, and 0.1 s to get ready for.
    """
    candidate = [
        [Turn((1.0,) * 4, untimed_s, ready_s, threads) if number < 40 * share else Turn((1.0,) * 4, 1.0, 0.1, threads)]
        for number in range(40)
    ]
    return judge({"eager": [[[Turn((2.0,) * 4, 2.0, 0.1)]] * 40], "candidate": [candidate]}, seed=1)


def test_work_done_in_calls_that_do_not_count_is_seen() -> None:
    """By more than 5 % of five calls."""
    assert prepares() == Evenness.EVEN
    assert prepares(untimed_s=1.2) == Evenness.EVEN
    assert prepares(untimed_s=1.3) == Evenness.UNEVEN


def test_work_done_before_inputs_lie_there_is_seen() -> None:
    assert prepares(ready_s=0.3) == Evenness.EVEN
    assert prepares(ready_s=0.4) == Evenness.UNEVEN


def test_all_kinds_of_uncounted_work_add_up() -> None:
    assert prepares(untimed_s=1.15, ready_s=0.25) == Evenness.UNEVEN


def test_what_is_prepared_in_few_turns_is_seen_and_what_interruptions_do_in_few_is_not() -> None:
    assert prepares(untimed_s=3.0, share=0.45) == Evenness.UNEVEN
    assert prepares(ready_s=1.0, share=0.45) == Evenness.UNEVEN
    assert prepares(untimed_s=3.0, ready_s=3.0, share=0.2) == Evenness.UNEVEN
    assert prepares(untimed_s=5.0, ready_s=5.0, share=0.05) == Evenness.EVEN


def test_threads_that_have_to_be_woken_up_are_no_preparation() -> None:
    """By 5 * 3200 * WAKING_A_THREAD_S = 0.128 s."""
    assert prepares(ready_s=0.4, threads=3201) == Evenness.EVEN
    assert prepares(ready_s=0.5, threads=3201) == Evenness.UNEVEN
    assert prepares(ready_s=0.4, threads=1) == Evenness.UNEVEN


def test_threads_are_counted_against_the_baseline_that_is_ready_soonest() -> None:
    """Another with as many threads, which takes as long to get ready as the candidate, takes nothing away from that."""
    few, many = Turn((2.0,) * 4, 2.0, 0.1), Turn((2.0,) * 4, 2.0, 0.9, threads=3201)
    for ready_s, verdict in ((0.4, Evenness.EVEN), (0.5, Evenness.UNEVEN)):
        candidate = Turn((1.0,) * 4, 1.0, ready_s, threads=3201)
        variants = {"eager": few, "compile": many, "candidate": candidate}
        assert judge({name: [[[each]] * 40] for name, each in variants.items()}, seed=1) == verdict


def cold(call_ms: float, cold_ms: float, eager_ms: float, eager_cold_ms: float) -> Evenness:
    """The verdict where untimed calls take so much longer than others. Turns have two timed calls."""
    variants = {"eager": (eager_ms, eager_cold_ms), "candidate": (call_ms, cold_ms)}
    turns = {name: Turn((each / 1e3,) * 2, (each + more) / 1e3) for name, (each, more) in variants.items()}
    return judge({name: [[[turn]] * 20] for name, turn in turns.items()}, seed=1)


def test_a_cold_start_that_takes_as_long_as_a_baselines_is_no_preparation_though_calls_are_shorter() -> None:
    assert cold(0.22, 0.08, 0.47, 0.08) == Evenness.EVEN
    assert cold(0.22, 0.11, 0.47, 0.08) == Evenness.EVEN
    assert cold(0.22, 0.12, 0.47, 0.08) == Evenness.UNEVEN
    assert cold(0.94, 0.16, 0.47, 0.08) == Evenness.EVEN  # slower, by the same share


def test_a_baseline_that_takes_long_to_get_going_excuses_a_faster_candidate_by_its_share_and_little_more() -> None:
    """A tenth of eager's time: a hundredth of it is its share."""
    assert cold(1.0, 0.1, 10.0, 1.0) == Evenness.EVEN
    assert cold(1.0, 0.25, 10.0, 1.0) == Evenness.EVEN
    assert cold(1.0, 0.35, 10.0, 1.0) == Evenness.UNEVEN
    assert cold(1.0, 1.0, 10.0, 1.0) == Evenness.UNEVEN


@pytest.mark.parametrize("less", ["ready_s", "untimed_s"])
def test_one_that_is_ready_sooner_than_baselines_gets_no_room_for_other_work(less: str) -> None:
    eager = Turn((2.0,) * 4, untimed_s=3.0, ready_s=1.0)
    gained = {"ready_s": 1.0, "untimed_s": 1.5} | {less: 0.0}
    hides = {"ready_s": {"untimed_s": 1.8}, "untimed_s": {"ready_s": 1.3}}[less]
    for more, verdict in (({}, Evenness.EVEN), (hides, Evenness.UNEVEN)):
        candidate = Turn((1.0,) * 4, **gained | more)
        assert judge({"eager": [[[eager]] * 20], "candidate": [[[candidate]] * 20]}, seed=1) == verdict


def test_what_a_baseline_takes_to_get_ready_is_nobodys_preparation() -> None:
    turns = {"eager": Turn((2.0,) * 2, 2.0, 3.0), "candidate": Turn((1.0,) * 2, 1.0, 3.0)}
    measured = {variant: [[[turn]] * 20] for variant, turn in turns.items()}
    assert float(uncounted(measured)[0]) == pytest.approx(0.0, abs=1e-12)


def test_sets_of_processes_of_different_speed_are_even() -> None:
    """A slow process is slow in all of its calls, which the value counts."""
    fast, slow = Turn((1.0,) * 2, 1.0), Turn((1.5,) * 2, 1.5)
    eager = [[[Turn((2.0,) * 2, 2.0)]] * 8] * 2
    assert judge({"eager": eager, "candidate": [[[fast]] * 8, [[slow]] * 8]}, seed=1) == Evenness.EVEN
