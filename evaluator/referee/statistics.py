"""Medians, middle means of paired ratios, and their intervals."""

import math
from collections.abc import Callable, Sequence

import torch

RESAMPLES = 1000
_CONFIDENCE = 0.95


def median(values: Sequence[float]) -> float:
    """The middle value (mean of the middle two)."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def unevenness(values: Sequence[float], cut: float) -> float:
    """The mean over the median, without the largest `cut` of the values (a share): what a median does not see."""
    ordered = sorted(values)
    kept = ordered[: max(1, len(ordered) - int(len(ordered) * cut))]
    return sum(kept) / len(kept) / median(ordered)


def median_interval(groups: Sequence[Sequence[float]], *, seed: int = 0) -> tuple[float, float, float]:
    """Median of all values and its 95 % interval; groups are freshly started process sets, values call times.

    Raises:
        ValueError: no values.
    """
    return _interval([torch.tensor(group, dtype=torch.float64) for group in groups], _medians, RESAMPLES, seed)


def ratio_interval(
    sets: Sequence[Sequence[Sequence[float]]], *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float, float]:
    """What paired ratios come to, and the 95 % interval: process sets hold rounds, rounds the ratios of paired calls.

    The interquartile mean of their logarithms: as deaf to interruptions as a median as long as they meet less than a
    quarter of the pairs, while it takes 0.6 times as many calls to be as exact (measured, docs/timing.md).

    Raises:
        ValueError: no values.
    """
    fewest = [min((len(pairs) for pairs in rounds), default=0) for rounds in sets]
    data = [
        torch.tensor([list(pairs[:size]) for pairs in rounds], dtype=torch.float64).log()
        for rounds, size in zip(sets, fewest, strict=True)
    ]
    value, low, high = torch.tensor(_interval(data, _middle_means, resamples, seed), dtype=torch.float64).exp().tolist()
    return value, low, high


def widened(value: float, low: float, high: float, resolution: float) -> tuple[float, float, float]:
    """An interval with a relative uncertainty added that is independent of its own (in quadrature, on each side)."""
    below, above = (math.hypot(math.log(end / value), resolution) for end in (low, high))
    return value, value * math.exp(-below), value * math.exp(above)


def _interval(
    groups: Sequence[torch.Tensor], estimate: Callable[[torch.Tensor], torch.Tensor], resamples: int, seed: int
) -> tuple[float, float, float]:
    """The estimate for all values, and its interval by a hierarchical bootstrap: groups are resampled, then their rows.

    Percentile bootstrap after Efron and Tibshirani (1993), with the two levels drawn one after the other as in Davison
    and Hinkley (1997), 3.8.
    """
    groups = [group.reshape(len(group), -1) for group in groups if group.numel()]
    if not groups:
        raise ValueError("no values to estimate an interval from")
    generator = torch.Generator().manual_seed(seed)
    count, size, width = len(groups), min(map(len, groups)), min(group.shape[1] for group in groups)
    chosen = torch.randint(count, (resamples, count), generator=generator)
    draws = torch.empty(resamples, count * size * width, dtype=torch.float64)
    for slot in range(count):
        for index, group in enumerate(groups):
            rows = chosen[:, slot] == index
            picks = torch.randint(len(group), (int(rows.sum()), size), generator=generator)
            place = slice(slot * size * width, (slot + 1) * size * width)
            draws[rows, place] = group[picks, :width].flatten(1)
    tail = (1 - _CONFIDENCE) / 2
    estimates = estimate(draws)
    low, high = (float(estimates.quantile(q)) for q in (tail, 1 - tail))
    value = float(estimate(torch.cat([group.flatten() for group in groups]).unsqueeze(0)))
    return value, min(low, value), max(high, value)


def _medians(rows: torch.Tensor) -> torch.Tensor:
    return rows.quantile(0.5, dim=1)


def _middle_means(rows: torch.Tensor) -> torch.Tensor:
    cut = rows.shape[1] // 4
    return rows.sort(dim=1).values[:, cut : rows.shape[1] - cut].mean(dim=1)
