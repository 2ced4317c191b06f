"""Measures what a GPU can do at best: bandwidths and the peak of matrix products, by events of CUDA's.

It runs in a runner of its own that has loaded nothing foreign.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

_TRIES = 12
_FLOATS = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}
_SIZES = (1024, 4096, 8192)
_BATCH = 8  # launches between two events, so that launching them does not count


def measure(points: Sequence[str]) -> dict[str, float]:
    """Measure points of this device (`protocol.peaks`).

    Raises:
        ValueError: there is no such point.
    """
    return {point: _measure(*point.split("/", 1)) for point in points}


def _measure(doing: str, of: str) -> float:
    if doing == "flops":
        return max(_flops_per_s(_FLOATS[of], size) for size in _SIZES)
    nbytes = int(of)
    source = torch.ones(max(1, nbytes // 4), device="cuda")
    if doing == "read":
        return nbytes / _best_s(lambda: source.sum())
    if doing == "write":
        return nbytes / _best_s(lambda: source.fill_(2.0))
    if doing == "copy":
        target = torch.empty_like(source)
        return 2 * nbytes / _best_s(lambda: target.copy_(source))
    raise ValueError(f"point: expected read, write, copy or flops, got {doing!r}")


def _flops_per_s(dtype: torch.dtype, size: int) -> float:
    left, right = (torch.ones(size, size, dtype=dtype, device="cuda") for _ in range(2))
    return 2 * size**3 / _best_s(lambda: left @ right)


def _best_s(work: Callable[[], object]) -> float:
    """The shortest time of one of several launches in a row."""
    shortest = float("inf")
    work()
    torch.cuda.synchronize()
    for _ in range(_TRIES):
        start: Any
        end: Any
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(_BATCH):
            work()
        end.record()
        torch.cuda.synchronize()
        shortest = min(shortest, start.elapsed_time(end) / 1e3 / _BATCH)
    return shortest
