"""Which core the referee runs on while calls are timed.

OpenMP binds each of a runner's threads to a core, the calling one to the first. The referee shares that core: it sleeps
while the caller works and goes on as soon as the caller sleeps. On any other core it would find a worker that still
spins, and wait there until the kernel's tick: 4 ms, in up to one call of ten.
"""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def on_the_callers() -> Iterator[None]:
    """Inside, the calling thread runs where runners' calling threads do."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(every)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


def every_core() -> set[int]:
    """The cores that the sandbox may use."""
    return os.sched_getaffinity(0)
