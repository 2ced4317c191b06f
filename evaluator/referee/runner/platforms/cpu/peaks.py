"""Measures what the processor can do at best: bandwidths and the peak of matrix products.

It runs in a runner of its own that has loaded nothing foreign, so that the referee itself keeps no thread pool.
"""

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch

from ....protocol.peaks import Peaks, Traffic, best

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
