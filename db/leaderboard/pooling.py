"""One figure for a candidate that was evaluated several times on one board (db/leaderboard/rules.py).

The best of several evaluations would reward asking again: its error grows with their number. So all valid evaluations
of a candidate are pooled, whichever jobs asked for them.

**What is pooled.** Evaluations that passed with figures that rank. If there is none, those that passed without rank.
Among these, trials count only if there is nothing else, because they choose and do not say how fast a candidate is; and
those with cold caches only if there are no others, because they measured something else. Retracted evaluations do not
count, nor do those with inputs of a shape group, which differ from each other.

**Refused once.** If any evaluation of the candidate on the board found it wrong (`is_disqualifying`), it has no figure
there: what passes only sometimes is not correct, and asking again must not help. Verdicts that a busy host can cause
(crashed, timed out, out of memory, build failed) do not disqualify. An operator who finds that the refusal was a
mistake retracts it.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from db.leaderboard.rules import Tier
from db.records import Measurements
from tasks.outcomes import COLD, OTHER_INPUTS, SLOWER, TAGS, TIE, TRIAL, Verdict, is_disqualifying, is_ranked

_NORMAL = 1.959964  # quantile for 95 % of the normal distribution
# By number of evaluations: Student's quantile for 95 % with one degree of freedom less. For two it would be 12.7, which
# makes a difference of 5 % an interval of 30 % on either side, and covers hardly more than this (in simulation 84 % for
# 83 %, tests/db/leaderboard/test_pooling.py). As between process sets, it is 2.4 times the normal one.
_STUDENT = {2: 4.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
_LEAST_VARIANCE = 1e-12  # in a divisor only: counted cycles have none
_LARGEST_LOG = 700.0

_NOT_FASTER = frozenset(tag.name for tag in TAGS.values() if not tag.faster)


@dataclass(frozen=True)
class Speedup:
    """A ratio of times with its 95 % interval, or without one."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def log_variance(self) -> float | None:
        """The variance of the value's logarithm that the interval stands for; None without a usable interval."""
        if self.low is None or self.high is None or not 0 < self.low <= self.value <= self.high:
            return None
        return ((math.log(self.high) - math.log(self.low)) / 2 / _NORMAL) ** 2


def pool_speedups(speedups: Sequence[Speedup]) -> Speedup:
    """The common value of repeated measurements of one speedup, and its 95 % interval.

    A random-effects mean of the logarithms: each measurement errs by what its own interval says, and besides by what
    differs between evaluations (the host's other load, the layout of memory). The variance between evaluations is the
    moment estimate of DerSimonian and Laird, *Meta-analysis in clinical trials*, Controlled Clinical Trials 7 (1986);
    weights are inverse variances. The interval takes the normal quantile for the measurements' own errors, which are
    known, and Student's for the part between evaluations, which is estimated from as few evaluations as there are
    (after Hartung and Knapp, *A refined method for the meta-analysis of controlled clinical trials with binary
    outcome*, Statistics in Medicine 20 (2001)).

    Measurements without an interval count only if none has one; the result has none then. The order does not matter.

    Args:
        speedups: at least one, all positive.
    """
    return _pool(speedups)[0]


def _pool(speedups: Sequence[Speedup]) -> tuple[Speedup, list[float]]:
    """The pooled speedup, and the weight of each one; the weights add up to 1."""
    if len(speedups) == 1:
        return speedups[0], [1.0]
    known = [each.log_variance for each in speedups]
    if all(variance is None for variance in known):
        weights = [1 / len(speedups)] * len(speedups)
        return Speedup(_mean([each.value for each in speedups], weights)), weights
    logs = [math.log(each.value) for each in speedups]
    own = [math.inf if variance is None else variance for variance in known]
    between = _variance_between(logs, own)
    raw = [1 / max(variance + between, _LEAST_VARIANCE) for variance in own]
    total = math.fsum(raw)
    weights = [weight / total for weight in raw]
    entered = [index for index, variance in enumerate(known) if variance is not None]
    if len(entered) == 1:
        return speedups[entered[0]], weights
    value = _mean([each.value for each in speedups], weights)
    square_own = math.fsum(weights[index] ** 2 * own[index] for index in entered)
    square_between = between * math.fsum(weight**2 for weight in weights)
    half = math.hypot(_NORMAL * math.sqrt(square_own), _student(len(entered)) * math.sqrt(square_between))
    factor = _exp(half)
    return Speedup(value, value / factor, min(value * factor, sys.float_info.max)), weights


def _variance_between(logs: Sequence[float], own: Sequence[float]) -> float:
    """DerSimonian and Laird's estimate of the variance between evaluations; 0 if their own errors explain it."""
    weights = [1 / max(variance, _LEAST_VARIANCE) for variance in own]
    total = math.fsum(weights)
    mean = math.fsum(weight * log for weight, log in zip(weights, logs, strict=True)) / total
    spread = math.fsum(weight * (log - mean) ** 2 for weight, log in zip(weights, logs, strict=True))
    freedom = sum(weight > 0 for weight in weights) - 1
    scale = total - math.fsum(weight**2 for weight in weights) / total
    return max(0.0, (spread - freedom) / scale) if freedom > 0 and scale > 0 else 0.0


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted geometric mean; never outside of the values by rounding."""
    mean = _exp(math.fsum(weight * math.log(value) for value, weight in zip(values, weights, strict=True)))
    counted = [value for value, weight in zip(values, weights, strict=True) if weight > 0]
    return min(max(mean, min(counted)), max(counted))


def _student(count: int) -> float:
    """Student's quantile for 95 % and `count` evaluations; for many by the first terms of its expansion."""
    if count in _STUDENT:
        return _STUDENT[count]
    z, freedom = _NORMAL, count - 1
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _exp(log: float) -> float:
    return math.exp(min(log, _LARGEST_LOG))


class Evaluated(Protocol):
    """What pooling reads of an evaluation; an `EvaluationRecord` has it."""

    @property
    def id(self) -> str:
        """Its identifier."""

    @property
    def verdict(self) -> str:
        """Its verdict."""

    @property
    def code(self) -> str | None:
        """Its code."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags."""

    @property
    def measurements(self) -> Measurements:
        """Its measured columns."""

    @property
    def created_at(self) -> datetime:
        """When it was stored."""

    @property
    def retracted_at(self) -> datetime | None:
        """When it was retracted."""


@dataclass(frozen=True)
class Pooled:
    """The figure of a candidate on a board.

    Attributes:
        tier: ranked, unranked or tried.
        evaluations: the number of evaluations that were pooled.
        latest_id: the newest of them.
        latest_at: when that was stored.
        tags: their tags; `tie` and `slower` follow from the pooled interval.
        measurements: speedups pooled as `pool_speedups` says; latencies and the roofline's fraction are geometric means
            with the weights of the speedups over eager, so that they fit these.
    """

    tier: Tier
    evaluations: int
    latest_id: str
    latest_at: datetime
    tags: tuple[str, ...]
    measurements: Measurements


@dataclass(frozen=True)
class CandidateFigure:
    """What the leaderboard says of a candidate on a board: its pooled figure, or that it was found wrong there, or
    neither if nothing passed.
    """

    pooled: Pooled | None
    disqualified: bool


def is_disqualified(evaluations: Sequence[Evaluated]) -> bool:
    """Whether any of a candidate's evaluations on a board found it wrong, unless that evaluation was retracted."""
    return any(is_disqualifying(each.verdict, each.code) and each.retracted_at is None for each in evaluations)


def pool_candidate(evaluations: Sequence[Evaluated]) -> Pooled | None:
    """The figure of a candidate.

    Args:
        evaluations: all evaluations of the candidate on one board, in any order.

    Returns:
        None if none passed, or if one found it wrong.
    """
    if is_disqualified(evaluations):
        return None
    chosen = _valid(evaluations)
    if not chosen:
        return None
    tier = _tier(chosen[0].tags)
    over_eager, weights = _pool([_over_eager(each.measurements) for each in chosen])
    used = [(each, weight) for each, weight in zip(chosen, weights, strict=True) if weight > 0]
    latest = used[-1][0]
    if len(used) == 1:
        return Pooled(tier, 1, latest.id, latest.created_at, latest.tags, latest.measurements)
    measurements = _pooled_measurements(over_eager, used)
    return Pooled(tier, len(used), latest.id, latest.created_at, _tags(over_eager, used), measurements)


def _valid(evaluations: Sequence[Evaluated]) -> list[Evaluated]:
    """The evaluations that are pooled, oldest first."""
    passed = [
        each
        for each in evaluations
        if each.verdict == Verdict.PASSED
        and (each.measurements.speedup or 0.0) > 0
        and each.retracted_at is None
        and OTHER_INPUTS not in each.tags
    ]
    best = min((_tier(each.tags) for each in passed), default=None)
    of_tier = [each for each in passed if _tier(each.tags) == best]
    chosen = [each for each in of_tier if COLD not in each.tags] or of_tier
    return sorted(chosen, key=lambda each: (each.created_at, each.id))


def _tier(tags: Sequence[str]) -> Tier:
    """What an evaluation that passed with these tags can bring its candidate to."""
    if is_ranked(tags):
        return Tier.RANKED
    return Tier.TRIED if TRIAL in tags else Tier.UNRANKED


def _over_eager(measurements: Measurements) -> Speedup:
    return Speedup(measurements.speedup or 0.0, measurements.speedup_low, measurements.speedup_high)


def _pooled_measurements(over_eager: Speedup, used: Sequence[tuple[Evaluated, float]]) -> Measurements:
    given = [each.measurements for each, _ in used]
    over_compile = [
        Speedup(each.speedup_compile, each.speedup_compile_low, each.speedup_compile_high)
        for each in given
        if each.speedup_compile is not None and each.speedup_compile > 0
    ]
    compiled = pool_speedups(over_compile) if over_compile else None
    name_of_best, over_best = _over_best(
        given, {"eager": over_eager} | ({} if compiled is None else {"compile": compiled})
    )
    means = {}
    for name in ("candidate_ms", "eager_ms", "compile_ms", "roofline_fraction"):
        known = [(value, weight) for each, weight in used if (value := getattr(each.measurements, name) or 0.0) > 0]
        total = math.fsum(weight for _, weight in known)
        means[name] = _mean([value for value, _ in known], [weight / total for _, weight in known]) if known else None
    return Measurements(
        speedup=over_eager.value,
        speedup_low=over_eager.low,
        speedup_high=over_eager.high,
        speedup_compile=None if compiled is None else compiled.value,
        speedup_compile_low=None if compiled is None else compiled.low,
        speedup_compile_high=None if compiled is None else compiled.high,
        speedup_best=None if over_best is None else over_best.value,
        speedup_best_low=None if over_best is None else over_best.low,
        speedup_best_high=None if over_best is None else over_best.high,
        best_baseline=name_of_best,
        **means,
    )


def _over_best(given: Sequence[Measurements], known: Mapping[str, Speedup]) -> tuple[str | None, Speedup | None]:
    """The baseline over which the pooled speedup is the least, and that speedup.

    Evaluations may have been timed against different baselines, and of one that is not among the usual ones it is known
    only where it was the fastest: there its speedups are pooled.

    Args:
        given: the figures of the evaluations.
        known: the pooled speedups over the usual baselines.
    """
    if not any(each.best_baseline for each in given):
        return None, None
    of: dict[str, list[Speedup]] = {}
    for each in given:
        if each.best_baseline is not None and each.best_baseline not in known and (each.speedup_best or 0.0) > 0:
            found = Speedup(each.speedup_best or 0.0, each.speedup_best_low, each.speedup_best_high)
            of.setdefault(each.best_baseline, []).append(found)
    pooled = {**known, **{name: pool_speedups(each) for name, each in of.items()}}
    least = min(pooled, key=lambda name: (pooled[name].value, name))
    return least, pooled[least]


def _tags(over_eager: Speedup, used: Sequence[tuple[Evaluated, float]]) -> tuple[str, ...]:
    tags = dict.fromkeys(tag for each, _ in used for tag in each.tags)
    if over_eager.low is None or over_eager.high is None:
        return tuple(tags)
    kept = [tag for tag in tags if tag not in _NOT_FASTER]
    if over_eager.high < 1.0:
        kept.append(SLOWER)
    elif over_eager.low <= 1.0:
        kept.append(TIE)
    return tuple(kept)
