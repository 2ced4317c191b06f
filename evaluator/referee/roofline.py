"""What the device could do at best: measured bandwidths and peak, and the time limit they set for a task.

Measured in a runner of its own that has loaded nothing foreign, so that the referee itself keeps no thread pool.
Roofline model: Williams, Waterman, Patterson (2009).
"""

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import partial

import torch

_SMALLEST_BYTES = 1 << 16
_SMALL_BYTES = 8 << 20  # for more, waking threads takes no time worth mentioning
_TRIES = 12
_TRIES_MIN = 3
_STABLE = 0.98  # a try that takes more than this share of the best one is no improvement
_STABLE_TRIES = 2  # so many of them end a measurement
_BUDGET_S = 0.025  # of one measurement
_LONG_ENOUGH_S = 0.004  # a matrix product of this length shows the peak
_SIZES = (256, 512, 1024, 2048, 4096)
_FLOATS = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}


@dataclass(frozen=True)
class Peaks:
    """Measured limits of this device, reading and writing alone.

    For data of the task's size that is met again and again: the referee has written a call's inputs just before, so at
    best they come from the caches, as far as they fit there. And for the footprint over which calls rotate.
    """

    read_bytes_per_s: float
    written_bytes_per_s: float
    rotating_read_bytes_per_s: float
    rotating_written_bytes_per_s: float
    flops_per_s: float  # in the task's floating-point types; 0 where that was not asked for


@dataclass(frozen=True)
class Limit:
    """The shortest time that the peaks allow, and what sets it."""

    seconds: float
    bound: str


@dataclass(frozen=True)
class Traffic:
    """What one call of a task moves: all bytes, and those that it must write.

    `rotation_bytes` is what calls rotate over; `most_bytes` are too many for a cache.
    """

    nbytes: int
    written: int
    rotation_bytes: int
    most_bytes: int


def measure(traffic: Traffic, dtypes: Sequence[str]) -> Peaks:
    """Measure this machine, with all of torch's threads and with one: the better of both counts.

    On a busy machine threads wait for each other, and too low a peak would make an honest candidate look faster than
    can be. (Large blocks take all threads long enough.) `dtypes`: of the matrix products to measure; of none, no peak
    is measured.
    """
    everyone = torch.get_num_threads()
    results = []
    for threads in sorted({1, everyone}):
        torch.set_num_threads(threads)
        flops = max(map(_flops_per_s, dtypes), default=0.0)
        if threads == everyone or traffic.nbytes <= _SMALL_BYTES:
            reading, writing = 2 * (traffic.nbytes - traffic.written), 2 * traffic.written
            rotation = traffic.rotation_bytes
            results.append(
                Peaks(
                    _reading(reading, traffic),
                    _writing(writing, traffic, threads),
                    _reading(max(reading, rotation), traffic),
                    _writing(max(writing, rotation), traffic, threads),
                    flops,
                )
            )
        else:
            results.append(Peaks(0.0, 0.0, 0.0, 0.0, flops))
    torch.set_num_threads(everyone)
    return best(*results)


def best(*peaks: Peaks) -> Peaks:
    """The highest of several measurements: interference only ever makes a peak look lower."""
    return Peaks(*(max(values) for values in zip(*map(astuple, peaks), strict=True)))


def limit(traffic: Traffic, flops: int, peaks: Peaks, *, cached: bool) -> Limit:
    """The longest of the times for what must be read, what must be written, and the FLOPs that must happen.

    Reading and writing may overlap, so their times are not added. `cached`: as if all data came from the caches.
    """
    if cached:
        reading, writing = peaks.read_bytes_per_s, peaks.written_bytes_per_s
    else:
        reading, writing = peaks.rotating_read_bytes_per_s, peaks.rotating_written_bytes_per_s
    moving = max((traffic.nbytes - traffic.written) / reading, traffic.written / writing)
    compute = flops / peaks.flops_per_s if flops else 0.0
    return Limit(moving, "cache" if cached else "memory") if moving >= compute else Limit(compute, "compute")


def _reading(footprint_bytes: int, traffic: Traffic) -> float:
    source = _block(footprint_bytes, traffic)
    return source.numel() * 4 / _best(lambda: source.sum())


def _writing(footprint_bytes: int, traffic: Traffic, threads: int) -> float:
    target = _block(footprint_bytes, traffic)
    nbytes = target.numel() * 4
    own = partial(_in_shares, ctypes.memset, target.data_ptr(), None, nbytes, threads)
    return nbytes / min(_best(lambda: target.fill_(2.0)), _best(own))


def _block(footprint_bytes: int, traffic: Traffic) -> torch.Tensor:
    """Half of a footprint, because what is written has another half to come from."""
    return torch.ones(max(_SMALLEST_BYTES, min(footprint_bytes, traffic.most_bytes)) // 8)


def _in_shares(work: Callable[..., object], target: int, source: int | None, nbytes: int, threads: int) -> None:
    """memset or memmove, a share of the block by each thread."""
    share = nbytes // threads
    jobs = [
        partial(work, target + start, 1 if source is None else source + start, share)
        for start in range(0, share * threads, share)
    ]
    helpers = [threading.Thread(target=job) for job in jobs[1:]]
    for helper in helpers:
        helper.start()
    jobs[0]()
    for helper in helpers:
        helper.join()


def _flops_per_s(dtype: str) -> float:
    """The peak of matrix products, of a size at which one takes long enough to show it."""
    peak = 0.0
    for size in _SIZES:
        left, right = (torch.ones(size, size, dtype=_FLOATS[dtype]) for _ in range(2))
        seconds = _best(lambda left=left, right=right: left @ right)  # type: ignore[misc]
        peak = max(peak, 2 * size**3 / seconds)
        if seconds > _LONG_ENOUGH_S:
            break
    return peak


def _best(work: Callable[[], object]) -> float:
    """The shortest time of several tries, until more of them seem to change nothing."""
    work()  # meets fresh pages, and libraries that have yet to start
    shortest, idle, spent = float("inf"), 0, 0.0
    for number in range(1, _TRIES + 1):
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
        idle = idle + 1 if seconds > _STABLE * shortest else 0
        shortest = min(shortest, seconds)
        spent += seconds
        if spent > _BUDGET_S or (number >= _TRIES_MIN and idle >= _STABLE_TRIES):
            break
    return shortest
