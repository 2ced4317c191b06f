"""Which core does what while calls are timed.

OpenMP binds each of a runner's threads to a core, the calling one to the first (`imports`, `bind_to_first`). The
referee shares that core: it sleeps while the caller works and goes on as soon as the caller sleeps. On any other core
it would find a worker that still spins, and wait there until the kernel's tick: 4 ms, in up to one call of ten.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator

import torch

_libc = ctypes.CDLL(None)
_CORES = 1024  # that a set of cores has room for, as the C library's cpu_set_t
_ATTRIBUTES_BYTES = 128  # at least the size of a pthread_attr_t


def bind_to_first(every_core: set[int]) -> None:
    """Have the calling thread run on the first of these cores only, and threads that it will start on any of them."""
    start_on(every_core)
    os.sched_setaffinity(0, {min(every_core)})


def start_on(every_core: set[int]) -> None:
    """Have threads that this process will start run on any of these cores.

    A thread inherits the cores of the one that starts it, unless the process has a default (glibc's
    pthread_setattr_default_np), which holds for std::thread and whatever else names no attributes of its own.
    """
    cores = bytearray(_CORES // 8)
    for core in every_core:
        cores[core // 8] |= 1 << core % 8
    attributes = ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
    if _libc.pthread_getattr_default_np(attributes) == 0:
        _libc.pthread_attr_setaffinity_np(attributes, ctypes.c_size_t(len(cores)), bytes(cores))
        _libc.pthread_setattr_default_np(attributes)
        _libc.pthread_attr_destroy(attributes)


def give_way() -> None:
    """Have every thread of this process, and those that it will start, run only while nobody else wants its core."""
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))


@contextlib.contextmanager
def beside_the_callers(every_core: set[int]) -> Iterator[None]:
    """Inside, the calling thread keeps off the first of these cores, if there is another, and computes alone.

    A team's threads would spin on the cores that this one was sent to.
    """
    before, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, every_core - {min(every_core)} or every_core)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        os.sched_setaffinity(0, before)
