"""What a device can do at best, and the traffic that its peaks are measured for."""

from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Peaks:
    """Measured limits of this device, reading and writing alone.

    For data of the task's size that is met again and again: the referee has written a call's inputs just before, so at
    best they come from the caches, as far as they fit there. And for the footprint over which calls rotate.
    """

    read_bytes_per_s: float
    written_bytes_per_s: float
    rotating_read_bytes_per_s: float
    rotating_written_bytes_per_s: float
    flops_per_s: float  # in the task's floating-point types; 0 where that was not asked for


@dataclass(frozen=True)
class Traffic:
    """What one call of a task moves: all bytes, and those that it must write.

    `rotation_bytes` is what calls rotate over; `most_bytes` are too many for a cache.
    """

    nbytes: int
    written: int
    rotation_bytes: int
    most_bytes: int


def best(*peaks: Peaks) -> Peaks:
    """The highest of several measurements: interference only ever makes a peak look lower."""
    return Peaks(*(max(values) for values in zip(*map(astuple, peaks), strict=True)))
