"""Figures of a set of samples, each with its formula and source. Pure functions.

One rule holds in every figure for samples whose speedup is not known:

- A sample that failed has no speed. It reaches no threshold, and in every mean and median whose name does not say
  `passed` it counts as 1.0, because its user keeps the reference.
- A sample that passed with times that do not count (noisy ones, for example) counts as no faster than the reference,
  `AS_THE_REFERENCE`, until it is measured again and its times count: as 1.0 in means and medians, as reaching
  thresholds below 1, and as missing those from 1 on.
- A sample that passed and is slower counts with its speedup.

The shares of samples of the first two kinds are always reported as well.
"""

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from statistics import fmean, median

PASS_AT = (1, 2, 5, 10, 100)
"""The k of Compile@k, pass@k and SpeedUp_α@k if none are asked for, as far as every task has so many samples."""

FAST_P = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The thresholds that KernelBench reports; those of SpeedUp_α@k are the same but for 0."""

AS_THE_REFERENCE = math.nextafter(1.0, 0.0)
"""The speed of a sample that passed with times that do not count. It prints as 1.0, and misses thresholds of 1.0 also
where these are included."""

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Sample:
    """One sample of a task. `speedup` is over one baseline; None if the sample failed or its times do not count."""

    task: str
    number: int
    compiled: bool
    passed: bool
    speedup: float | None = None

    def __post_init__(self) -> None:
        """Refuse a sample that no evaluation can give.

        Raises:
            ValueError: it passed but did not compile, it failed but has a speedup, or its speedup is not positive.
        """
        if self.passed and not self.compiled:
            raise ValueError(f"{self.task} sample {self.number}: passed without having compiled")
        if self.speedup is not None and not (self.passed and 0 < self.speedup < math.inf):
            raise ValueError(f"{self.task} sample {self.number}: speedup {self.speedup} of a try that did not earn it")

    @property
    def speed(self) -> float | None:
        """The speedup that figures count, by the rule of this module; None if the sample failed."""
        if not self.passed:
            return None
        return AS_THE_REFERENCE if self.speedup is None else self.speedup


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval over tasks; the bounds are None if there is only one task."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Figures:
    """The figures of a set of samples. Rates are shares from 0 to 1. Without samples, all are None or empty.

    Each task has the same weight, however many samples it has. `geomean` and `median` count failures as 1.0, as the
    module says; `geomean_passed` and `median_passed` leave them out. `share_failed` of all samples failed.
    `share_without_speedup` of them have no speedup that counts: they failed, or passed with times that do not count.
    `compile_at_k`, `pass_at_k` and, by threshold, `speedup_at_k` are by k.
    """

    tasks: int = 0
    samples: int = 0
    compile_rate: float | None = None
    correctness_rate: float | None = None
    compile_at_k: Mapping[int, float] = field(default_factory=dict)
    pass_at_k: Mapping[int, float] = field(default_factory=dict)
    fast_p: Mapping[float, float] = field(default_factory=dict)
    speedup_at_k: Mapping[float, Mapping[int, float]] = field(default_factory=dict)
    geomean: Estimate | None = None
    geomean_passed: Estimate | None = None
    median: float | None = None
    median_passed: float | None = None
    share_failed: float | None = None
    share_without_speedup: float | None = None


def figures(
    samples: Iterable[Sample], *, ks: Iterable[int] = PASS_AT, resamples: int = RESAMPLES, seed: int = 0
) -> Figures:
    """All figures of these samples; the same samples give the same. Of `ks`, those are left out that a task lacks."""
    by_task = group_by_task(samples)
    if not by_task:
        return Figures()
    samples_by_task = list(by_task.values())
    fewest = min(map(len, samples_by_task))
    ks = [k for k in ks if k <= fewest]
    logs = [task_log(samples) for samples in samples_by_task]
    passed_logs = [mean for samples in samples_by_task if (mean := passed_log(samples)) is not None]
    return Figures(
        tasks=len(samples_by_task),
        samples=sum(map(len, samples_by_task)),
        compile_rate=_mean_share(samples_by_task, is_compiled),
        correctness_rate=_mean_share(samples_by_task, is_passed),
        compile_at_k={k: rate_at_k(samples_by_task, is_compiled, k) for k in ks},
        pass_at_k={k: rate_at_k(samples_by_task, is_passed, k) for k in ks},
        fast_p={p: fast_p(samples_by_task, p) for p in FAST_P},
        speedup_at_k={
            alpha: {k: rate_at_k(samples_by_task, reaches(alpha), k) for k in ks} for alpha in FAST_P if alpha > 0
        },
        geomean=geomean(logs, resamples=resamples, seed=seed),
        geomean_passed=geomean(passed_logs, resamples=resamples, seed=seed) if passed_logs else None,
        median=math.exp(median(logs)),
        median_passed=math.exp(median(passed_logs)) if passed_logs else None,
        share_failed=_mean_share(samples_by_task, lambda sample: not sample.passed),
        share_without_speedup=_mean_share(samples_by_task, lambda sample: sample.speedup is None),
    )


def estimates(
    samples: Iterable[Sample],
    *,
    ks: Iterable[int] = PASS_AT,
    ps: Iterable[float] = FAST_P,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Estimate]:
    """The figures of `figures` by the names that papers use, each with its 95 % interval over tasks and samples.

    The names are `compile@k`, `pass@k`, `fast_p`, `SpeedUp_α@k` with numbers for k, p and α (those of `ps` but for 0),
    `geomean` and `geomean_passed`. The intervals are those of the cluster bootstrap: a task with all its samples is a
    cluster, clusters are drawn with replacement, and samples within a drawn cluster stay as they are. This is the first
    of the two ways of Davison and Hinkley 1997 (Bootstrap Methods and their Application, section 3.8), whose draws vary
    as much as both tasks and samples do; drawing samples as well would count their part twice. An interval holds the
    middle 95 % of the draws' figures (percentiles). All figures are from the same draws. Tasks without a sample that
    passed are no part of `geomean_passed`, and not drawn for it.
    """
    by_task = list(group_by_task(samples).values())
    if not by_task:
        return {}
    fewest = min(map(len, by_task))
    ps = tuple(ps)
    rates: list[tuple[str, Condition, int]] = []
    for k in ks:
        if k <= fewest:
            rates += [(f"compile@{k}", is_compiled, k), (f"pass@{k}", is_passed, k)]
            rates += [(f"SpeedUp_{alpha:g}@{k}", reaches(alpha), k) for alpha in ps if alpha > 0]
    columns = {name: [_at_k(samples, holds, k) for samples in by_task] for name, holds, k in rates}
    columns |= {f"fast_{p:g}": [_share(samples, exceeds(p)) for samples in by_task] for p in ps}
    logs = [task_log(samples) for samples in by_task]
    intervals = bootstrap_means([*columns.values(), logs], resamples=resamples, seed=seed)
    found = {
        name: Estimate(fmean(values), *(interval if len(by_task) > 1 else ()))
        for (name, values), interval in zip(columns.items(), intervals, strict=False)
    }
    found["geomean"] = _exp(logs, intervals[-1])
    passed_logs = [mean for samples in by_task if (mean := passed_log(samples)) is not None]
    if passed_logs:
        found["geomean_passed"] = geomean(passed_logs, resamples=resamples, seed=seed)
    return found


def best_of(samples: Iterable[Sample]) -> list[Sample]:
    """The best sample of each task: the fastest that passed, else one that passed, else one that compiled."""
    return [
        max(samples, key=lambda sample: (sample.passed, sample.speed or 0.0, sample.compiled, -sample.number))
        for samples in group_by_task(samples).values()
    ]


def group_by_task(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """The samples by task, ordered by the tasks' names and the samples' numbers."""
    by_task: dict[str, list[Sample]] = {}
    for sample in sorted(samples, key=lambda sample: (sample.task, sample.number)):
        by_task.setdefault(sample.task, []).append(sample)
    return by_task


def pass_at_k(n: int, c: int, k: int) -> float:
    """The probability that at least one of `k` samples passes: 1 − C(n−c, k) / C(n, k), if `c` of `n` passed.

    This is the unbiased estimator of Chen et al. 2021 (Evaluating Large Language Models Trained on Code, equation 1).

    Raises:
        ValueError: not 0 ≤ c ≤ n and 1 ≤ k ≤ n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} of {n} tries with {c} passed; needs 0 <= passed <= tries and 1 <= k <= tries")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


Condition = Callable[[Sample], bool]
"""What a sample may fulfil."""


def is_compiled(sample: Sample) -> bool:
    """Whether a candidate of the sample could be built."""
    return sample.compiled


def is_passed(sample: Sample) -> bool:
    """Whether the sample passed."""
    return sample.passed


def reaches(alpha: float) -> Condition:
    """The condition of SpeedUp_α: correct, and at least `alpha` times as fast."""
    return lambda sample: sample.speed is not None and sample.speed >= alpha


def exceeds(p: float) -> Condition:
    """The condition of fast_p: correct, and more than `p` times as fast."""
    return lambda sample: sample.speed is not None and sample.speed > p


def rate_at_k(by_task: Sequence[Sequence[Sample]], holds: Condition, k: int) -> float:
    """The share of tasks for which at least one of k samples fulfils a condition: its estimate from n ≥ k samples.

    With `is_passed` this is pass@k (Chen et al. 2021). With `is_compiled` and `reaches(α)` it is Compilation@k and
    SpeedUp_α@k of Wen et al. 2025 (MultiKernelBench: A Multi-Platform Benchmark for Kernel Generation, section 4.1):
    the share of problems for which at least one of k samples compiles, or is at least α times as fast as eager. They
    generate k samples. From n > k samples it is the mean over tasks of the unbiased estimator `pass_at_k`, that is, the
    mean over all choices of k of them; for n = k it is their count. At k = 1, SpeedUp_α@k differs from fast_p only at
    the threshold, which it includes.

    Raises:
        ValueError: a task has fewer than k samples.
    """
    return fmean(_at_k(samples, holds, k) for samples in by_task)


def _at_k(samples: Sequence[Sample], holds: Condition, k: int) -> float:
    return pass_at_k(len(samples), sum(map(holds, samples)), k)


def fast_p(by_task: Sequence[Sequence[Sample]], p: float) -> float:
    """fast_p: the share of all tasks with a kernel that is correct and more than `p` times as fast.

    1/N Σ 1(correct ∧ speedup > p), by Ouyang et al. 2025 (KernelBench: Can LLMs Write Efficient GPU Kernels, section
    3.3). With several samples a task it is the expected value for one sample of each task. fast_0 is the share of
    correct kernels.
    """
    return _mean_share(by_task, exceeds(p))


def task_log(samples: Sequence[Sample]) -> float:
    """The mean of the logs of a task's speedups; a sample that failed, or whose times do not count, counts as 1.0."""
    return fmean(0.0 if sample.speedup is None else math.log(sample.speedup) for sample in samples)


def passed_log(samples: Sequence[Sample]) -> float | None:
    """The mean of the logs of the speedups of samples that passed; None if none did."""
    passed = [sample for sample in samples if sample.passed]
    return task_log(passed) if passed else None


def geomean(logs: Sequence[float], *, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """The geometric mean of the tasks' speedups, from their logs, with its bootstrap interval over tasks.

    The mean is exp(mean(logs)). For the interval, tasks are drawn with replacement, and it holds the middle 95 % of the
    means of the draws (the percentile bootstrap, Efron and Tibshirani 1993, chapter 13).

    Raises:
        ValueError: there are no logs.
    """
    if not logs:
        raise ValueError("the geometric mean of nothing; give at least one speedup")
    return _exp(logs, bootstrap_mean(logs, resamples=resamples, seed=seed))


def _exp(logs: Sequence[float], interval: tuple[float, float]) -> Estimate:
    value = math.exp(fmean(logs))
    return Estimate(value, math.exp(interval[0]), math.exp(interval[1])) if len(logs) > 1 else Estimate(value)


def bootstrap_mean(values: Sequence[float], *, resamples: int = RESAMPLES, seed: int = 0) -> tuple[float, float]:
    """The middle 95 % of the means of `resamples` draws with replacement; the same seed gives the same interval."""
    return bootstrap_means([values], resamples=resamples, seed=seed)[0]


def bootstrap_means(
    columns: Sequence[Sequence[float]], *, resamples: int = RESAMPLES, seed: int = 0
) -> list[tuple[float, float]]:
    """`bootstrap_mean` of columns of the same length, by the same draws of rows for all of them."""
    rng = random.Random(seed)  # noqa: S311  # chooses tasks, guards nothing
    count = len(columns[0])
    if count == 1:
        return [(column[0], column[0]) for column in columns]
    means: list[list[float]] = [[] for _ in columns]
    for _ in range(resamples):
        drawn = itemgetter(*rng.choices(range(count), k=count))
        for column, found in zip(columns, means, strict=True):
            found.append(sum(drawn(column)) / count)
    tail = (1 - CONFIDENCE) / 2
    intervals = []
    for column, found in zip(columns, means, strict=True):
        found.sort()
        # The interval includes the mean even if so few tasks differ that no draw reaches it.
        centre = fmean(column)
        low, high = found[int(tail * resamples)], found[math.ceil((1 - tail) * resamples) - 1]
        intervals.append((min(low, centre), max(high, centre)))
    return intervals


def _share(samples: Sequence[Sample], holds: Condition) -> float:
    return sum(map(holds, samples)) / len(samples)


def _mean_share(by_task: Sequence[Sequence[Sample]], holds: Condition) -> float:
    """The mean over tasks of the share of samples for which a condition holds."""
    return fmean(_share(samples, holds) for samples in by_task)
