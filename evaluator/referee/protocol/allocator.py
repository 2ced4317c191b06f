"""Gives memory that a process has freed back to the kernel.

The sandbox's allocator keeps it (`MALLOC_CONF` of the image), so that timed calls meet no fresh pages. Where memory is
short, processes of which nothing is timed give it back: the referee, and the reference's runner.
"""

import contextlib
import ctypes

_EVERY_ARENA = b"arena.4096.purge"  # jemalloc(3): MALLCTL_ARENAS_ALL


def give_back() -> None:
    """Give back what is free now, by jemalloc's call or that of the GNU C library; where there is neither, nothing."""
    library = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):
        library.mallctl(_EVERY_ARENA, None, None, None, ctypes.c_size_t(0))
        return
    with contextlib.suppress(AttributeError):
        library.malloc_trim(0)
