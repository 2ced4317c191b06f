"""Which core does what while calls are timed.

OpenMP binds each of a runner's threads to a core, the calling one to the first (`imports`, `bind_to_first`). The
referee shares that core: it sleeps while the caller works and goes on as soon as the caller sleeps. On any other core
it would find a worker that still spins, and wait there until the kernel's tick: 4 ms, in up to one call of ten.
"""

import contextlib
import os
from collections.abc import Iterator

import torch


def bind_to_first() -> None:
    """Have the calling thread run on the first of its cores only."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


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
