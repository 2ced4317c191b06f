"""What the device could do at best: measured bandwidth and peak, and the time limit they set for a task.

Runs in a runner of its own that has loaded nothing foreign, so that the referee itself keeps no thread pool.
Roofline model: Williams, Waterman, Patterson (2009).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_WRITES_MATTER = 0.2


@dataclass(frozen=True)
class Peaks:
    """Measured limits: bytes per second for traffic and footprint like the task's, and float32 FLOP per second."""

    bytes_per_s: float
    flops_per_s: float


@dataclass(frozen=True)
class Limit:
    """The shortest time that the peaks allow, and which of them sets it."""

    seconds: float
    bound: str


def measure(footprint_bytes: int, written_share: float) -> Peaks:
    """Measure this machine, with all of torch's threads and with one (the better counts: on a busy machine threads wait
    for each other, and too low a peak would make an honest candidate look impossibly fast).

    Arrays have the task's own footprint, so that a task that fits into the caches is held to the caches' speed. A task
    that writes at least a fifth of its bytes is held to the better of copying and writing, any other one to reading.
    """
    everyone = torch.get_num_threads()
    results = []
    for threads in sorted({1, everyone}):
        torch.set_num_threads(threads)
        results.append(_measure(footprint_bytes, written_share))
    torch.set_num_threads(everyone)
    return best(*results)


def best(*peaks: Peaks) -> Peaks:
    """The highest of several measurements: interference only ever makes a peak look lower."""
    return Peaks(max(peak.bytes_per_s for peak in peaks), max(peak.flops_per_s for peak in peaks))


def _measure(footprint_bytes: int, written_share: float) -> Peaks:
    count = max(1 << 16, min(footprint_bytes, 1 << 29) // 8)
    source, target = torch.rand(count), torch.empty(count)
    nbytes = count * 4
    if written_share >= _WRITES_MATTER:
        bandwidth = max(2 * nbytes / _best(lambda: target.copy_(source)), nbytes / _best(lambda: target.fill_(1.0)))
    else:
        bandwidth = nbytes / _best(lambda: source.sum())
    size = 1024
    left, right = torch.rand(size, size), torch.rand(size, size)
    return Peaks(bandwidth, 2 * size**3 / _best(lambda: left @ right))


def _best(work: Callable[[], object], tries: int = 12) -> float:
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def limit(nbytes: int, flops: int, peaks: Peaks) -> Limit:
    """The larger of the time for the bytes that must move and the time for the FLOPs that must happen."""
    memory, compute = nbytes / peaks.bytes_per_s, flops / peaks.flops_per_s
    return Limit(memory, "memory") if memory >= compute else Limit(compute, "compute")
