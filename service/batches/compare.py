"""Compares two sets of samples task by task. Pure functions, each with its formula and source.

Both sides use the same number of samples of a task, those with the lowest numbers. Missing tasks are reported.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from service.batches.statistics import RESAMPLES, Estimate, Sample, bootstrap_mean, group_by_task, task_log

EXACT_UP_TO = 60
"""Up to so many differences, the Wilcoxon distribution is counted; above, a normal distribution approximates it."""


@dataclass(frozen=True)
class Wilcoxon:
    """The signed-rank test over differences.

    Attributes:
        n: the number of differences that are not zero.
        zeros: the number of differences that are zero.
        w_plus: the sum of the ranks of the positive differences.
        p: two-sided; 1 if there is no difference.
        exact: whether p was counted, not approximated.
    """

    n: int
    zeros: int
    w_plus: float
    p: float
    exact: bool


@dataclass(frozen=True)
class McNemar:
    """The exact test of tasks that only one side passes. `p` is two-sided, and 1 if there is no difference."""

    both: int
    only_a: int
    only_b: int
    neither: int
    p: float


@dataclass(frozen=True)
class Comparison:
    """Side A compared with side B over `n` common tasks. Failures count as a speedup of 1.0 on both sides.

    Attributes:
        ratio: A's speedup divided by B's; above 1 if A is faster.
        faster: the test of whether one side is faster.
        passes: the test of whether one side passes more tasks.
        tasks: the ratio of each task.
    """

    n: int
    ratio: Estimate | None
    faster: Wilcoxon
    passes: McNemar
    tasks: tuple[tuple[str, float], ...] = ()
    missing_in_a: tuple[str, ...] = ()
    missing_in_b: tuple[str, ...] = ()


def compare(a: Iterable[Sample], b: Iterable[Sample], *, resamples: int = RESAMPLES, seed: int = 0) -> Comparison:
    """Compare two sets of samples, paired by task.

    The ratio is the geometric mean over tasks of (A's mean speedup / B's mean speedup). Its interval is the percentile
    bootstrap over tasks. `faster` tests the logs of the ratios. A task is passed if any of its samples passed.
    """
    samples_a, samples_b = group_by_task(a), group_by_task(b)
    logs: list[tuple[str, float]] = []
    passed: list[tuple[bool, bool]] = []
    for task in sorted(samples_a.keys() & samples_b.keys()):
        both = min(len(samples_a[task]), len(samples_b[task]))
        ours, theirs = samples_a[task][:both], samples_b[task][:both]
        logs.append((task, task_log(ours) - task_log(theirs)))
        passed.append((any(sample.passed for sample in ours), any(sample.passed for sample in theirs)))
    differences = [difference for _, difference in logs]
    return Comparison(
        n=len(logs),
        ratio=_ratio(differences, resamples, seed) if differences else None,
        faster=wilcoxon(differences),
        passes=mcnemar(passed),
        tasks=tuple((task, math.exp(difference)) for task, difference in logs),
        missing_in_a=tuple(sorted(samples_b.keys() - samples_a.keys())),
        missing_in_b=tuple(sorted(samples_a.keys() - samples_b.keys())),
    )


def _ratio(differences: Sequence[float], resamples: int, seed: int) -> Estimate:
    value = math.exp(fmean(differences))
    if len(differences) < 2:
        return Estimate(value)
    low, high = bootstrap_mean(differences, resamples=resamples, seed=seed)
    return Estimate(value, math.exp(low), math.exp(high))


def wilcoxon(differences: Sequence[float]) -> Wilcoxon:
    """Wilcoxon's signed-rank test (1945), two-sided: do paired differences lean to one side?

    Zeros are left out. Equal sizes share the mean of their ranks. For up to `EXACT_UP_TO` differences, p is the share
    of the 2^n assignments of signs to the ranks whose sum is at least as far from the middle as the observed sum. Above
    that, p is the normal approximation with the variance of the given ranks, Σ rank² / 4, and a continuity correction
    of 1/2.

    Raises:
        ValueError: a difference is not a finite number.
    """
    if not all(map(math.isfinite, differences)):
        raise ValueError("a difference is not finite; leave out what has no figure")
    signed = sorted((difference for difference in differences if difference != 0), key=abs)
    zeros = len(differences) - len(signed)
    if not signed:
        return Wilcoxon(0, zeros, 0.0, 1.0, exact=True)
    doubled = _doubled_ranks([abs(difference) for difference in signed])
    plus = sum(rank for rank, difference in zip(doubled, signed, strict=True) if difference > 0)
    exact = len(signed) <= EXACT_UP_TO
    p = _exact_p(doubled, plus) if exact else _normal_p(doubled, plus)
    return Wilcoxon(len(signed), zeros, plus / 2, p, exact)


def mcnemar(passed: Sequence[tuple[bool, bool]]) -> McNemar:
    """McNemar's exact test (1947), two-sided: does one side pass more of the same tasks?

    Let only A pass b tasks, and only B pass c tasks. Under the null hypothesis each of these tasks is as likely A's as
    B's: p = min(1, 2 P(X ≤ min(b, c))) with X binomial(b + c, 1/2).
    """
    only_a = sum(a and not b for a, b in passed)
    only_b = sum(b and not a for a, b in passed)
    differ = only_a + only_b
    tail = sum(math.comb(differ, k) for k in range(min(only_a, only_b) + 1))
    return McNemar(
        both=sum(a and b for a, b in passed),
        only_a=only_a,
        only_b=only_b,
        neither=sum(not a and not b for a, b in passed),
        p=min(1.0, 2 * tail / 2**differ),
    )


def _doubled_ranks(sizes: Sequence[float]) -> list[int]:
    """Twice the rank of each of these ascending sizes. They are whole numbers even if equal sizes share a mean rank."""
    ranks: list[int] = []
    while len(ranks) < len(sizes):
        first = len(ranks)
        last = first
        while last + 1 < len(sizes) and math.isclose(sizes[last + 1], sizes[first], rel_tol=1e-12):
            last += 1
        ranks += [first + last + 2] * (last - first + 1)
    return ranks


def _exact_p(doubled: Sequence[int], plus: int) -> float:
    """The share of all sign patterns whose positive ranks lie as far from the middle."""
    total = sum(doubled)
    ways = [1] + [0] * total
    for rank in doubled:
        for value in range(total, rank - 1, -1):
            ways[value] += ways[value - rank]
    distance = abs(2 * plus - total)
    extreme = sum(count for value, count in enumerate(ways) if abs(2 * value - total) >= distance)
    return extreme / (1 << len(doubled))


def _normal_p(doubled: Sequence[int], plus: int) -> float:
    ranks = [rank / 2 for rank in doubled]
    middle, spread = sum(ranks) / 2, math.sqrt(sum(rank * rank for rank in ranks) / 4)  # with ties, midranks suffice
    z = max(0.0, abs(plus / 2 - middle) - 0.5) / spread
    return min(1.0, 2 * (1 - NormalDist().cdf(z)))
