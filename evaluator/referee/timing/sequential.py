"""Whether a candidate is faster than the best one so far: a sequential test that ends as soon as it is decided.

Both are timed in the same process sets, on the same inputs. After each set comes a look, and some early ones come in
the first set, for what is clear. Let `x_i` be the interquartile mean of the log ratios of set `i`, `s_i` its standard
error from the pairs within the set, and `k` the sets so far:

    estimate = mean(x_i)
    error²   = max(SET_SD² + q² · mean(s_i²), variance(x_i)) / k
    interval = estimate ± BOUNDARY · error

`q` is Student's quantile over the normal one, because `s_i` is estimated from few pairs (`student_factor`). The test
ends as `better` or `worse` once the interval does not hold 0, and as `alike` once it lies within `ALIKE`.

Sources: the boundary is constant over `LOOKS` looks (Pocock, "Group sequential methods in the design and analysis of
clinical trials", Biometrika 64, 1977; the constants in Jennison and Turnbull, "Group Sequential Methods", 2000, table
2.1), so the chance of any wrong `better` or `worse` in all looks together is 5 %. `s_i` is the standard error of a
trimmed mean (Tukey and McLaughlin, Sankhya A 25, 1963). Error rates by simulation are in
`tests/evaluator/referee/timing/test_sequential.py`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch

from . import statistics

LOOKS = 8
"""Looks at most."""

EARLY_LOOKS = 2
"""Looks in the first process set before its end, each after twice as many rounds as the one before."""

SETS = LOOKS - EARLY_LOOKS
"""Process sets at most."""

BOUNDARY = 2.512
"""Pocock's constant for eight looks, two-sided 5 %."""

SET_SD = 0.01
"""Standard deviation between process sets of the same code that is assumed at least: few sets show too little of it."""

ALIKE = math.log(1.02)
"""Log ratio below which one candidate is as good as another."""

_QUARTER = 0.25


class Decision(StrEnum):
    """What the test says of the candidate."""

    BETTER = "better"
    WORSE = "worse"
    ALIKE = "alike"
    OPEN = "open"  # not decided


@dataclass(frozen=True)
class TrialResult:
    """How much faster the candidate is than its rival, with the interval of the test, and what that decides."""

    value: float
    low: float
    high: float
    decision: Decision
    sets: int


def compare(ratios: Sequence[Sequence[float]], *, set_sd: float = SET_SD) -> TrialResult:
    """Look at the sets so far.

    Args:
        ratios: for each process set the ratios rival/candidate of paired calls.
        set_sd: the standard deviation between sets that is assumed at least.

    Raises:
        ValueError: there is no set, or one without ratios.
    """
    if not ratios or not all(ratios):
        raise ValueError("no ratios to compare by")
    count = len(ratios)
    means, errors = zip(*(mean_and_error([math.log(ratio) for ratio in pairs]) for pairs in ratios), strict=True)
    estimate = math.fsum(means) / count
    few = student_factor(sum(_degrees(len(pairs)) for pairs in ratios))
    within = set_sd**2 + few**2 * math.fsum(error**2 for error in errors) / count
    between = math.fsum((mean - estimate) ** 2 for mean in means) / (count - 1) if count > 1 else 0.0
    half = BOUNDARY * math.sqrt(max(within, between) / count)
    low, high = estimate - half, estimate + half
    decision = Decision.OPEN
    if low > 0:
        decision = Decision.BETTER
    elif high < 0:
        decision = Decision.WORSE
    elif low > -ALIKE and high < ALIKE:
        decision = Decision.ALIKE
    return TrialResult(math.exp(estimate), math.exp(low), math.exp(high), decision, count)


def is_worth_more(ratios: Sequence[float], *, set_sd: float, measured_s: float, started_s: float) -> bool:
    """Whether another round of the present set tells more than another set would in the same time.

    With `n` pairs a set that scatter with variance `v`, at `c` seconds a pair and `C` for a set's start, `k` sets have
    the error² `(set_sd² + v / n) / k` and take `k * (C + n * c)` seconds. For given seconds the error is least where
    `n * c = C * (v / n) / set_sd²`. That depends on how pairs scatter, never on which side is ahead, so it is no look.

    Args:
        ratios: those of the present set's paired calls.
        set_sd: the standard deviation between sets that is assumed at least.
        measured_s: what the set's rounds have taken so far.
        started_s: what the set took to start.
    """
    _, error = mean_and_error([math.log(ratio) for ratio in ratios])
    return measured_s * set_sd**2 < started_s * error**2


def student_factor(degrees: float) -> float:
    """Student's quantile over the normal one where the latter is `BOUNDARY`, for so many degrees of freedom.

    The first terms of the expansion in their inverse (Abramowitz and Stegun, "Handbook of Mathematical Functions",
    1964, 26.7.5).
    """
    square = BOUNDARY**2
    return 1 + (square + 1) / (4 * degrees) + (5 * square**2 + 16 * square + 3) / (96 * degrees**2)


def _degrees(size: int) -> int:
    """The degrees of freedom of the error of so many values' interquartile mean."""
    return max(1, size - 2 * int(size * _QUARTER) - 1)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The interquartile mean of values and its standard error; infinite for a single value."""
    mean = statistics.middle_mean(values)
    ordered = torch.tensor(sorted(values), dtype=torch.float64)
    size = len(ordered)
    if size < 2:
        return mean, math.inf
    cut = int(size * _QUARTER)
    winsorized = ordered.clamp(ordered[cut], ordered[size - cut - 1])
    return mean, float(winsorized.std()) / ((1 - 2 * cut / size) * math.sqrt(size))
