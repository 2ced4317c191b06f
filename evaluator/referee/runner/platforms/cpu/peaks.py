"""Measures what the processor can do at best: bandwidths and the peak of matrix products.

It runs in a runner of its own that has loaded nothing foreign, so that the referee itself keeps no thread pool.
"""

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch

_SMALL_BYTES = 4 << 20  # for more, waking threads takes no time worth mentioning
_TRIES = 12
_TRIES_MIN = 3
_STABLE = 0.98  # a try that takes more than this share of the best one is no improvement
_STABLE_TRIES = 2  # so many of them end a measurement
_BUDGET_S = 0.025  # of one measurement
_LONG_ENOUGH_S = 0.004  # a matrix product of this length shows the peak
_SIZES = (256, 512, 1024, 2048, 4096)
_FLOATS = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}


def measure(points: Sequence[str]) -> dict[str, float]:
    """Measure points of this machine (`protocol.peaks`), with all of torch's threads and with one: the better counts.

    On a busy machine threads wait for each other, and too low a peak would make an honest candidate look faster than
    can be. (Large blocks take all threads long enough.)

    Raises:
        ValueError: there is no such point.
    """
    everyone = torch.get_num_threads()
    rates = dict.fromkeys(points, 0.0)
    for threads in sorted({1, everyone}):
        torch.set_num_threads(threads)
        for point in points:
            doing, _, of = point.partition("/")
            if doing == "flops":
                rates[point] = max(rates[point], _flops_per_s(of))
            elif doing not in _MOVES:
                raise ValueError(f"point: expected read, write, copy or flops, got {point!r}")
            elif threads == everyone or int(of) <= _SMALL_BYTES:
                rates[point] = max(rates[point], _MOVES[doing](int(of), threads))
    torch.set_num_threads(everyone)
    return rates


def _reading(nbytes: int, _: int) -> float:
    source = torch.ones(nbytes // 4)
    return nbytes / _best(lambda: source.sum())


def _writing(nbytes: int, threads: int) -> float:
    target = torch.ones(nbytes // 4)
    own = partial(_in_shares, ctypes.memset, target.data_ptr(), None, nbytes, threads)
    return nbytes / min(_best(lambda: target.fill_(2.0)), _best(own))


def _copying(nbytes: int, threads: int) -> float:
    """Bytes read and bytes written, together."""
    source, target = torch.ones(nbytes // 4), torch.ones(nbytes // 4)
    own = partial(_in_shares, ctypes.memmove, target.data_ptr(), source.data_ptr(), nbytes, threads)
    return 2 * nbytes / min(_best(lambda: target.copy_(source)), _best(own))


_MOVES: dict[str, Callable[[int, int], float]] = {"read": _reading, "write": _writing, "copy": _copying}


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
