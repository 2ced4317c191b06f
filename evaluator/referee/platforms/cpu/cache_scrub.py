"""Caches as a call finds them in a program that has done other things meanwhile: full of other data."""

import os

import torch

from .caches import last_level_cache_bytes


class CacheScrubber:
    """Fills every core's caches with data that no runner uses; called while all of them are stopped."""

    def __init__(self) -> None:
        self._other = torch.zeros(2 * max(last_level_cache_bytes(), 1 << 20), dtype=torch.uint8)
        self._cores = sorted(os.sched_getaffinity(0))

    def __call__(self) -> None:
        """Takes some 10 ms a core."""
        for core in self._cores:
            os.sched_setaffinity(0, {core})
            self._other.add_(1)
        os.sched_setaffinity(0, set(self._cores))
