"""What the device could do at best: measured bandwidths and peak, and the time limit they set for a task.

Measured in a runner of its own that has loaded nothing foreign, so that the referee itself keeps no thread pool.
Roofline model: Williams, Waterman, Patterson (2009).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_WRITES_MATTER = 0.2
_TRIES = 12


@dataclass(frozen=True)
class Peaks:
    """Measured limits of this device for traffic like the task's.

    `bytes_per_s` holds for the footprint that timed calls rotate over (memory, unless that fits into the caches);
    `cached_bytes_per_s` for the task's own footprint, met again and again: nothing can be faster.
    """

    bytes_per_s: float
    cached_bytes_per_s: float
    flops_per_s: float  # float32


@dataclass(frozen=True)
class Limit:
    """The shortest time that the peaks allow, what sets it, and the time below which a measurement is impossible."""

    seconds: float
    bound: str
    impossible_s: float


def measure(footprint_bytes: int, rotation_bytes: int, written_share: float) -> Peaks:
    """Measure this machine, with all of torch's threads and with one.

    The better of both counts: on a busy machine threads wait for each other, and too low a peak would make an honest
    candidate look impossibly fast. A task that writes at least a fifth of its bytes is held to the better of copying
    and writing, any other one to reading.
    """
    everyone = torch.get_num_threads()
    results = []
    for threads in sorted({1, everyone}):
        torch.set_num_threads(threads)
        cached = _bandwidth(footprint_bytes, written_share)
        rotating = _bandwidth(max(rotation_bytes, footprint_bytes), written_share)
        results.append(Peaks(rotating, max(cached, rotating), _flops_per_s()))
    torch.set_num_threads(everyone)
    return best(*results)


def best(*peaks: Peaks) -> Peaks:
    """The highest of several measurements: interference only ever makes a peak look lower."""
    return Peaks(
        max(peak.bytes_per_s for peak in peaks),
        max(peak.cached_bytes_per_s for peak in peaks),
        max(peak.flops_per_s for peak in peaks),
    )


def _bandwidth(footprint_bytes: int, written_share: float) -> float:
    count = max(1 << 16, min(footprint_bytes, 1 << 29) // 8)
    source, target = torch.rand(count), torch.empty(count)
    nbytes = count * 4
    if written_share >= _WRITES_MATTER:
        return max(2 * nbytes / _best(lambda: target.copy_(source)), nbytes / _best(lambda: target.fill_(1.0)))
    return nbytes / _best(lambda: source.sum())


def _flops_per_s() -> float:
    size = 1024
    left, right = torch.rand(size, size), torch.rand(size, size)
    return 2 * size**3 / _best(lambda: left @ right)


def _best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def limit(nbytes: int, flops: int, peaks: Peaks) -> Limit:
    """The larger of the time for the bytes that must move and the time for the FLOPs that must happen."""
    memory, compute = nbytes / peaks.bytes_per_s, flops / peaks.flops_per_s
    impossible = max(nbytes / peaks.cached_bytes_per_s, compute)
    return Limit(memory, "memory", impossible) if memory >= compute else Limit(compute, "compute", impossible)
