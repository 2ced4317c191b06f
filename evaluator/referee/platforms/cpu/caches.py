"""The processor's caches: their size, and how a call finds them in a program that has done other things meanwhile."""

import os
from pathlib import Path

import torch

_LAST_LEVEL = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")


def last_level_cache_bytes() -> int:
    """Size of the last-level cache as the kernel tells it; 32 MiB where it does not."""
    try:
        text = _LAST_LEVEL.read_text().strip()
        return int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0)
    except (OSError, ValueError):
        return 32 << 20


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
