"""The peak rates of a device, and the traffic that they are measured for."""

from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Peaks:
    """The measured peak rates of this device, for reading alone and for writing alone.

    `read_bytes_per_s` and `written_bytes_per_s` hold for data of the task's size that is used again and again: the
    referee has written a call's inputs just before, so at best they come from the caches, as far as they fit. The
    `rotating_` rates hold for all memory over which calls rotate.
    """

    read_bytes_per_s: float
    written_bytes_per_s: float
    rotating_read_bytes_per_s: float
    rotating_written_bytes_per_s: float
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


def best(*peaks: Peaks) -> Peaks:
    """The highest rates of several measurements, because interference only makes a peak look lower."""
    return Peaks(*(max(values) for values in zip(*map(astuple, peaks), strict=True)))
