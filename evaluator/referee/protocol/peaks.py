"""The peak rates of a device: the points that are measured, and what they say of the traffic of one task.

A point is named by what is done and by how much memory it is done on: `read/1048576` reads a MiB again and again. The
host keeps the rate of each point for each device. Sizes are powers of two, so that tasks of like size share points; a
size is rounded down, and so its rate is rather too high than too low.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SMALLEST_BYTES = 1 << 15


@dataclass(frozen=True)
class Peaks:
    """The peak rates of this device, for reading alone, for writing alone, and for copying (all bytes moved).

    `read_bytes_per_s` and `written_bytes_per_s` hold for data of the task's size that is used again and again: the
    referee has written a call's inputs just before, so at best they come from the caches, as far as they fit. The
    `rotating_` rates hold for all memory over which calls rotate.
    """

    read_bytes_per_s: float
    written_bytes_per_s: float
    rotating_read_bytes_per_s: float
    rotating_written_bytes_per_s: float
    rotating_copied_bytes_per_s: float
    flops_per_s: float  # in the task's floating-point types; 0 if the request named no type


@dataclass(frozen=True)
class Traffic:
    """The memory traffic of one call of a task.

    Attributes:
        nbytes: all bytes that the call moves.
        written: the bytes of these that it must write.
        rotation_bytes: the size of the memory over which calls rotate.
        most_bytes: a size too large for any cache.
    """

    nbytes: int
    written: int
    rotation_bytes: int
    most_bytes: int


def points(traffic: Traffic, dtypes: Sequence[str]) -> list[str]:
    """The points that tell the peaks for this traffic and for matrix products of these types."""
    return [*_bandwidths(traffic).values(), *(f"flops/{dtype}" for dtype in dtypes)]


def peaks_of(rates: Mapping[str, float], traffic: Traffic, dtypes: Sequence[str]) -> Peaks:
    """The peaks for this traffic and these types. `rates` holds the rate of each of its points.

    Raises:
        KeyError: a point is missing.
    """
    bandwidths = {name: rates[point] for name, point in _bandwidths(traffic).items()}
    return Peaks(**bandwidths, flops_per_s=max((rates[f"flops/{dtype}"] for dtype in dtypes), default=0.0))


def _bandwidths(traffic: Traffic) -> dict[str, str]:
    """The point of each bandwidth. Calls rotate over inputs and outputs, of which each kind takes half."""
    read, written, half = traffic.nbytes - traffic.written, traffic.written, traffic.rotation_bytes // 2
    sizes = {
        "read_bytes_per_s": ("read", read),
        "written_bytes_per_s": ("write", written),
        "rotating_read_bytes_per_s": ("read", max(read, half)),
        "rotating_written_bytes_per_s": ("write", max(written, half)),
        "rotating_copied_bytes_per_s": ("copy", max(traffic.nbytes // 2, half)),
    }
    return {name: f"{doing}/{_rounded(size, traffic.most_bytes // 2)}" for name, (doing, size) in sizes.items()}


def _rounded(nbytes: int, most_bytes: int) -> int:
    """The largest power of two up to `nbytes`, within the limits."""
    return 1 << (max(_SMALLEST_BYTES, min(nbytes, most_bytes)).bit_length() - 1)
