"""Medians, middle means of paired ratios, and their intervals."""

import math
from collections.abc import Callable, Sequence

import torch

RESAMPLES = 1000
CONFIDENCE = 0.95
# By number of groups: Student's quantile for 80 % over the normal distribution's. (For 95 % two groups would need six
# times as much, of which most would be for nothing: rounds within a set vary, too.)
FEW_GROUPS = {2: 2.402, 3: 1.472, 4: 1.278, 5: 1.196, 6: 1.152, 7: 1.124, 8: 1.104}


def median(values: Sequence[float]) -> float:
    """The middle value (mean of the middle two)."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def middle_mean(values: Sequence[float]) -> float:
    """The interquartile mean."""
    return float(middle_means(torch.tensor([list(values)], dtype=torch.float64))[0])


def median_interval(groups: Sequence[Sequence[float]], *, seed: int = 0) -> tuple[float, float, float]:
    """Median of all values and its 95 % interval; groups are freshly started process sets, values call times.

    Raises:
        ValueError: no values.
    """
    data = [torch.tensor(group, dtype=torch.float64).unsqueeze(1) for group in groups]
    return _interval(data, _medians, RESAMPLES, seed)


def ratio_interval(
    sets: Sequence[Sequence[Sequence[float]]], *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float, float]:
    """What paired ratios come to, and the 95 % interval: process sets hold rounds, rounds the ratios of paired calls.

    The interquartile mean of their logarithms: as deaf to interruptions as a median as long as they meet less than a
    quarter of the pairs, while it is as exact with 0.6 times as many calls (replayed on recorded ones, docs/timing.md).

    Raises:
        ValueError: no values.
    """
    fewest = [min((len(pairs) for pairs in rounds), default=0) for rounds in sets]
    data = [
        torch.tensor([list(pairs[:size]) for pairs in rounds], dtype=torch.float64).log()
        for rounds, size in zip(sets, fewest, strict=True)
    ]
    value, low, high = torch.tensor(_interval(data, middle_means, resamples, seed), dtype=torch.float64).exp().tolist()
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
    and Hinkley (1997), 3.8. Drawing k groups from k shows (k - 1) / k of the variance between them, so their distances
    from what they come to together are made larger by the root of its inverse; and by `FEW_GROUPS`, because so few
    also often lie near each other by chance.
    """
    groups = [group for group in groups if group.numel()]
    if not groups:
        raise ValueError("no values to estimate an interval from")
    generator = torch.Generator().manual_seed(seed)
    count = len(groups)
    value = float(estimate(torch.cat([group.flatten() for group in groups]).unsqueeze(0)))
    apart = math.sqrt(count / (count - 1)) * FEW_GROUPS.get(count, 1.0) - 1 if count > 1 else 0.0
    moved = [group + apart * (float(estimate(group.flatten().unsqueeze(0))) - value) for group in groups]
    chosen = torch.randint(count, (resamples, count), generator=generator)
    widest = max(group.numel() for group in groups)
    # Groups differ in size: what a smaller one leaves free is NaN, which sorts last and is not counted.
    draws = torch.full((resamples, count * widest), math.nan, dtype=torch.float64)
    for slot in range(count):
        for index, group in enumerate(moved):
            rows = (chosen[:, slot] == index).nonzero().squeeze(1)
            picks = torch.randint(len(group), (len(rows), len(group)), generator=generator)
            draws[rows, slot * widest : slot * widest + group.numel()] = group[picks].flatten(1)
    tail = (1 - CONFIDENCE) / 2
    estimates = estimate(draws)
    estimates = estimates.clamp(
        min(float(group.min()) for group in groups), max(float(group.max()) for group in groups)
    )
    low, high = (float(estimates.quantile(q)) for q in (tail, 1 - tail))
    return value, min(low, value), max(high, value)


def _medians(rows: torch.Tensor) -> torch.Tensor:
    return rows.nanquantile(0.5, dim=1)


def middle_means(rows: torch.Tensor) -> torch.Tensor:
    """The interquartile mean of each row; NaN is not counted."""
    ordered = rows.sort(dim=1).values
    sums = torch.nn.functional.pad(ordered.nan_to_num(0.0).cumsum(dim=1), (1, 0))
    sizes = (~torch.isnan(rows)).sum(dim=1, keepdim=True)
    cut = sizes // 4
    return ((sums.gather(1, sizes - cut) - sums.gather(1, cut)) / (sizes - 2 * cut)).squeeze(1)
