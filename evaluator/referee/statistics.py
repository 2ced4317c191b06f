"""Medians, paired ratios and their intervals."""

from collections.abc import Sequence

import torch

RESAMPLES = 2000
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
    """Median of all values and its 95 % interval by a hierarchical bootstrap: groups are resampled, then their values.

    Groups are freshly started process sets; their values are block ratios or call times. Percentile bootstrap after
    Efron and Tibshirani (1993), with the two levels drawn one after the other as in Davison and Hinkley (1997), 3.8.

    Raises:
        ValueError: no values.
    """
    groups = [group for group in groups if group]
    if not groups:
        raise ValueError("median_interval: no values")
    generator = torch.Generator().manual_seed(seed)
    data = [torch.tensor(group, dtype=torch.float64) for group in groups]
    count = len(data)
    chosen = torch.randint(count, (RESAMPLES, count), generator=generator)
    size = min(len(group) for group in groups)
    draws = torch.empty(RESAMPLES, count * size, dtype=torch.float64)
    for slot in range(count):
        for index, group in enumerate(data):
            rows = chosen[:, slot] == index
            picks = torch.randint(len(group), (int(rows.sum()), size), generator=generator)
            draws[rows, slot * size : (slot + 1) * size] = group[picks]
    medians = draws.quantile(0.5, dim=1)
    tail = (1 - _CONFIDENCE) / 2
    low, high = (float(medians.quantile(q)) for q in (tail, 1 - tail))
    value = median([value for group in groups for value in group])
    return value, min(low, value), max(high, value)
