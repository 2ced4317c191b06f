"""Gives memory of a process that is free, or whose contents are needed no longer, back to the kernel.

The sandbox's allocator keeps it (`MALLOC_CONF` of the image), so that timed calls meet no fresh pages. Where memory is
short, the referee and the reference's runner give it back, of which nothing is timed, and others before a call that is
not timed.
"""

import contextlib
import ctypes
import mmap

_EVERY_ARENA = b"arena.4096.purge"  # jemalloc(3): MALLCTL_ARENAS_ALL


def give_back() -> None:
    """Give back what is free now, by jemalloc's call or that of the GNU C library; where there is neither, nothing."""
    library = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):
        library.mallctl(_EVERY_ARENA, None, None, None, ctypes.c_size_t(0))
        return
    with contextlib.suppress(AttributeError):
        library.malloc_trim(0)


def discard(place: int, nbytes: int) -> None:
    """Give back the whole pages of this process's memory from an address on. What lay there reads as zero (madvise(2)).

    Raises:
        OSError: this is no memory of the process.
    """
    first = -(-place // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (place + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if length <= 0:
        return
    library = ctypes.CDLL(None, use_errno=True)
    if library.madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), mmap.MADV_DONTNEED):
        raise OSError(ctypes.get_errno(), "memory cannot be given back")
