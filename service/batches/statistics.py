"""Figures of a set of samples, each with its formula and source. Pure functions.

In every mean and median whose name does not say `passed`, a sample that failed, or whose speedup is unreliable, counts
as a speedup of 1.0, because its user keeps the reference. A sample that passed and is slower counts with its speedup.
The share of such samples is always reported as well.
"""

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

PASS_AT = (1, 2, 5, 10, 100)
"""The k of pass@k, as far as every task has so many tries."""

FAST_P = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The thresholds that KernelBench reports; those of SpeedUp_α@1 are the same but for 0."""

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Sample:
    """One sample of a task. `speedup` is over one baseline; None if the sample failed or its speedup is unreliable."""

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
    module says. `geomean_passed` and `median_passed` leave out samples without a speedup. `share_without_speedup` is
    the share of these: `share_failed` of all samples failed, and the rest of them passed with unreliable times.
    """

    tasks: int = 0
    samples: int = 0
    compile_rate: float | None = None
    correctness_rate: float | None = None
    pass_at_k: Mapping[int, float] = field(default_factory=dict)
    fast_p: Mapping[float, float] = field(default_factory=dict)
    speedup_at_1: Mapping[float, float] = field(default_factory=dict)
    geomean: Estimate | None = None
    geomean_passed: Estimate | None = None
    median: float | None = None
    median_passed: float | None = None
    share_failed: float | None = None
    share_without_speedup: float | None = None


def figures(samples: Iterable[Sample], *, resamples: int = RESAMPLES, seed: int = 0) -> Figures:
    """All figures of these samples. The same samples give the same figures."""
    by_task = group_by_task(samples)
    if not by_task:
        return Figures()
    samples_by_task = list(by_task.values())
    fewest = min(map(len, samples_by_task))
    logs = [task_log(samples) for samples in samples_by_task]
    passed_logs = [mean for samples in samples_by_task if (mean := passed_log(samples)) is not None]
    return Figures(
        tasks=len(samples_by_task),
        samples=sum(map(len, samples_by_task)),
        compile_rate=_mean_share(samples_by_task, lambda sample: sample.compiled),
        correctness_rate=_mean_share(samples_by_task, lambda sample: sample.passed),
        pass_at_k={k: pass_rate(samples_by_task, k) for k in PASS_AT if k <= fewest},
        fast_p={p: fast_p(samples_by_task, p) for p in FAST_P},
        speedup_at_1={alpha: speedup_at_k(samples_by_task, alpha, 1) for alpha in FAST_P if alpha > 0},
        geomean=geomean(logs, resamples=resamples, seed=seed),
        geomean_passed=geomean(passed_logs, resamples=resamples, seed=seed) if passed_logs else None,
        median=math.exp(median(logs)),
        median_passed=math.exp(median(passed_logs)) if passed_logs else None,
        share_failed=_mean_share(samples_by_task, lambda sample: not sample.passed),
        share_without_speedup=_mean_share(samples_by_task, lambda sample: sample.speedup is None),
    )


def best_of(samples: Iterable[Sample]) -> list[Sample]:
    """The best sample of each task: the fastest that passed, else one that passed, else one that compiled."""
    return [
        max(samples, key=lambda sample: (sample.passed, sample.speedup or 0.0, sample.compiled, -sample.number))
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


def pass_rate(by_task: Sequence[Sequence[Sample]], k: int) -> float:
    """pass@k: the mean of `pass_at_k` over tasks.

    Raises:
        ValueError: a task has fewer than k tries.
    """
    return fmean(pass_at_k(len(samples), sum(sample.passed for sample in samples), k) for samples in by_task)


def fast_p(by_task: Sequence[Sequence[Sample]], p: float) -> float:
    """fast_p: the share of all tasks with a kernel that is correct and more than `p` times as fast.

    1/N Σ 1(correct ∧ speedup > p), by Ouyang et al. 2025 (KernelBench: Can LLMs Write Efficient GPU Kernels, section
    3.3). With several samples a task it is the expected value for one sample of each task. fast_0 is the share of
    correct kernels. A correct kernel whose speedup is unreliable counts in fast_0 only.
    """
    if p <= 0:
        return _mean_share(by_task, lambda sample: sample.passed)
    return _mean_share(by_task, lambda sample: sample.speedup is not None and sample.speedup > p)


def speedup_at_k(by_task: Sequence[Sequence[Sample]], alpha: float, k: int) -> float:
    """SpeedUp_α@k: the probability that at least one of k samples is correct and at least `alpha` times as fast.

    This is MultiKernelBench's extension of pass@k (Wen et al. 2025): the same estimator counts samples that reach
    `alpha` instead of samples that pass. At k = 1 it differs from fast_p only at the threshold, which it includes.

    Raises:
        ValueError: a task has fewer than k tries.
    """
    return fmean(
        pass_at_k(len(samples), sum(sample.speedup is not None and sample.speedup >= alpha for sample in samples), k)
        for samples in by_task
    )


def task_log(samples: Sequence[Sample]) -> float:
    """The mean of the logs of a task's speedups; a sample without a speedup counts as 1.0."""
    return fmean(0.0 if sample.speedup is None else math.log(sample.speedup) for sample in samples)


def passed_log(samples: Sequence[Sample]) -> float | None:
    """The mean of the logs of those speedups that exist; None if there are none."""
    logs = [math.log(sample.speedup) for sample in samples if sample.speedup is not None]
    return fmean(logs) if logs else None


def geomean(logs: Sequence[float], *, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """The geometric mean of the tasks' speedups, from their logs, with its bootstrap interval over tasks.

    The mean is exp(mean(logs)). For the interval, tasks are drawn with replacement, and it holds the middle 95 % of the
    means of the draws (the percentile bootstrap, Efron and Tibshirani 1993, chapter 13).

    Raises:
        ValueError: there are no logs.
    """
    if not logs:
        raise ValueError("the geometric mean of nothing; give at least one speedup")
    value = math.exp(fmean(logs))
    if len(logs) < 2:
        return Estimate(value)
    low, high = bootstrap_mean(logs, resamples=resamples, seed=seed)
    return Estimate(value, math.exp(low), math.exp(high))


def bootstrap_mean(values: Sequence[float], *, resamples: int = RESAMPLES, seed: int = 0) -> tuple[float, float]:
    """The middle 95 % of the means of `resamples` draws with replacement; the same seed gives the same interval."""
    rng = random.Random(seed)  # noqa: S311  # chooses tasks, guards nothing
    means = sorted(fmean(rng.choices(values, k=len(values))) for _ in range(resamples))
    tail = (1 - CONFIDENCE) / 2
    # The interval includes the mean even if so few tasks differ that no draw reaches it.
    centre = fmean(values)
    return min(means[int(tail * resamples)], centre), max(means[math.ceil((1 - tail) * resamples) - 1], centre)


def _mean_share(by_task: Sequence[Sequence[Sample]], holds: Callable[[Sample], bool]) -> float:
    """The mean over tasks of the share of samples for which a condition holds."""
    return fmean(sum(map(holds, samples)) / len(samples) for samples in by_task)
