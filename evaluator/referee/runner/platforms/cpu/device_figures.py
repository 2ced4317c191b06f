"""Measures what kernels meet on this processor: bandwidths by size, streaming stores, waking threads, matrix products.

It runs in a runner that has loaded nothing foreign. The kernels are C++ as candidates write it: g++ builds them, and
they share torch's team of threads. An array is used as in an evaluated call: the input was written just before, by one
thread; inputs and outputs take turns, so that no cache holds those of the next call unless all of them fit.
"""

import ctypes
import itertools
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from . import peaks

SIZES = tuple(1 << exponent for exponent in range(20, 27))  # of each array: 1 to 64 MiB
_SLOTS_MAX = 8  # as an evaluation has
_TRIES_MIN = 4
_SAME = 1.1  # a rate is known when two tries agree as well as that
_BUDGET_S = 0.6  # for a size
_IDLE_MS = {"at_once": 0, "after_1_ms": 1, "after_10_ms": 10}
_WAKES = {0: 200, 1: 60, 10: 20}  # regions for each idle time
_DOING = {"read": (0, 0), "write": (1, 0), "write_streamed": (1, 1), "copy": (2, 0), "copy_streamed": (2, 1)}
_MOVED = {0: 1, 1: 1, 2: 2}  # arrays

# A loop that g++ recognises as memcpy or memset would call the C library, which may stream by itself.
_FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-std=c++17", "-fno-tree-loop-distribute-patterns")
_SOURCE = r"""
#include <cstdint>
#include <ctime>
#include <omp.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

typedef float line __attribute__((vector_size(64)));  // g++ splits it where registers are narrower

static double now() {
    timespec moment;
    clock_gettime(CLOCK_MONOTONIC, &moment);
    return moment.tv_sec + 1e-9 * moment.tv_nsec;
}

static inline void stream(line *target, const line &value) {
    float *to = reinterpret_cast<float *>(target);
    const float *from = reinterpret_cast<const float *>(&value);
#if defined(__AVX512F__)
    _mm512_stream_ps(to, _mm512_loadu_ps(from));
#elif defined(__AVX__)
    for (int i = 0; i < 16; i += 8) _mm256_stream_ps(to + i, _mm256_loadu_ps(from + i));
#elif defined(__SSE2__)
    for (int i = 0; i < 16; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
#else
    *target = value;
#endif
}

static inline void fence() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

extern "C" int can_stream() {
#if defined(__SSE2__)
    return 1;
#else
    return 0;
#endif
}

extern "C" double seconds(int doing, int streamed, const line *source, line *target, int64_t lines, int threads) {
    static volatile float sink;
    float total = 0;
    double start = now();
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        int64_t team = omp_get_num_threads(), own = omp_get_thread_num();
        int64_t first = lines * own / team, last = lines * (own + 1) / team;
        if (doing == 0) {
            line sums[4] = {};
            int64_t i = first;
            for (; i + 4 <= last; i += 4)
                for (int j = 0; j < 4; j++) sums[j] += source[i + j];
            for (; i < last; i++) sums[0] += source[i];
            line sum = sums[0] + sums[1] + sums[2] + sums[3];
            for (int j = 0; j < 16; j++) total += sum[j];
        } else if (doing == 1) {
            line value = {};
            value += static_cast<float>(lines);
            if (streamed) for (int64_t i = first; i < last; i++) stream(target + i, value);
            else for (int64_t i = first; i < last; i++) target[i] = value;
        } else {
            if (streamed) for (int64_t i = first; i < last; i++) stream(target + i, source[i]);
            else for (int64_t i = first; i < last; i++) target[i] = source[i];
        }
        if (streamed) fence();
    }
    double took = now() - start;
    sink = total;
    return took;
}

extern "C" void wake(int threads, int64_t idle_ms, int times, double *seconds) {
    for (int i = 0; i < times; i++) {
        timespec idle = {0, idle_ms * 1000000};
        if (idle_ms) nanosleep(&idle, nullptr);
        double start = now();
#pragma omp parallel num_threads(threads)
        { asm volatile("" ::: "memory"); }
        seconds[i] = now() - start;
    }
}
"""


def measure(rotation_bytes: int) -> dict[str, Any]:
    """The figures of this processor as plain values; `evaluator/platforms/cpu/device_text.py` reads them.

    Args:
        rotation_bytes: the footprint that an evaluation's inputs rotate over.

    Raises:
        RuntimeError: g++ could not build the kernels.
    """
    library, threads = _built(), torch.get_num_threads()
    return {
        "threads": threads,
        "rates": _rates(library, threads, rotation_bytes),
        "flops_per_s": peaks.measure(["flops/float32"])["flops/float32"],
        "wake_s": {name: _wake_s(library, threads, idle_ms) for name, idle_ms in _IDLE_MS.items()},
    }


def _built() -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp())
    (folder / "figures.cpp").write_text(_SOURCE, encoding="utf-8")
    command = ["g++", *_FLAGS, "-o", "figures.so", "figures.cpp"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"g++ failed: {done.stderr.strip()[:400]}")
    library = ctypes.CDLL(str(folder / "figures.so"))
    integer, pointer, wide = ctypes.c_int, ctypes.c_void_p, ctypes.c_int64
    library.seconds.argtypes = [integer, integer, pointer, pointer, wide, integer]
    library.seconds.restype = ctypes.c_double
    library.wake.argtypes = [integer, wide, integer, pointer]
    return library


def _rates(library: ctypes.CDLL, threads: int, rotation_bytes: int) -> list[dict[str, float]]:
    """For each size the rate of each kind of work. One that nothing confirms within the budget is left out."""
    kinds = [name for name, (_, streamed) in _DOING.items() if not streamed or library.can_stream()]
    slots = {size: max(2, min(-(-rotation_bytes // size), _SLOTS_MAX)) for size in SIZES}
    written, targets = torch.ones(max(SIZES) // 4), [torch.zeros(max(SIZES) // 4) for _ in range(2)]
    sources = torch.zeros(max(size * number for size, number in slots.items()) // 4)
    turns = itertools.count()

    def seconds(kind: str, size: int) -> float:
        turn = next(turns)
        source = sources.data_ptr() + turn % slots[size] * size
        target = targets[turn % 2].data_ptr()  # the number of kinds is odd, so each kind meets both
        ctypes.memmove(source, written.data_ptr(), size)
        return float(library.seconds(*_DOING[kind], source, target, size // 64, threads))

    return [
        {"bytes": size, **{kind: _MOVED[_DOING[kind][0]] * size / best for kind, best in times.items()}}
        for size in SIZES
        for times in [confirmed({kind: partial(seconds, kind, size) for kind in kinds})]
    ]


def confirmed(work: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The shortest time of each kind of work, as far as a second one agrees with it.

    Interference only makes times longer, so the shortest counts. One that is alone may have been lucky.
    """
    times: dict[str, list[float]] = {kind: [] for kind in work}
    for run in work.values():
        run()  # the first meets other sizes in the caches
    start = time.perf_counter()
    while True:
        for kind, run in work.items():
            times[kind] = sorted([*times[kind], run()])
        known = {kind: took[0] for kind, took in times.items() if len(took) > 1 and took[1] <= _SAME * took[0]}
        tried = len(next(iter(times.values())))
        if (tried >= _TRIES_MIN and len(known) == len(work)) or time.perf_counter() - start > _BUDGET_S:
            return known


def _wake_s(library: ctypes.CDLL, threads: int, idle_ms: int) -> float:
    """The time of an empty parallel region after so much idleness: its lower quartile, for interference adds to it."""
    times = _WAKES[idle_ms]
    seconds = (ctypes.c_double * times)()
    library.wake(threads, idle_ms, times, seconds)
    return float(sorted(seconds)[times // 4])
