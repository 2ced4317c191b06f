"""The cycles that the array machine's instructions take.

In one cycle the machine moves `MEMORY_BYTES_PER_CYCLE` bytes between memory and its arrays, or works on `LANES`
elements, or carries out `PRODUCT_FLOPS_PER_CYCLE` floating-point operations of a matrix product. The start of a program
takes `START_CYCLES`.
"""

import math

from .peaks import Peaks

HERTZ = 1e9
"""The nominal clock rate, by which a cycle is shown as a nanosecond."""

START_CYCLES = 200
MEMORY_BYTES_PER_CYCLE = 32
LANES = 16
PRODUCT_FLOPS_PER_CYCLE = 256


def memory_cycles(moved_bytes: int) -> int:
    """Cycles to move `moved_bytes` between memory and the machine."""
    return math.ceil(moved_bytes / MEMORY_BYTES_PER_CYCLE)


def lane_cycles(elements: int, each: int) -> int:
    """Cycles of an instruction on `elements` that takes `each` cycles for a group of `LANES` elements."""
    return math.ceil(elements / LANES) * each


def product_cycles(flops: int) -> int:
    """Cycles of `flops` floating-point operations of matrix products."""
    return math.ceil(flops / PRODUCT_FLOPS_PER_CYCLE)


def peaks(*, products: bool) -> Peaks:
    """What the machine can do at best, at the nominal rate; `products`: whether a call has matrix products."""
    moved = MEMORY_BYTES_PER_CYCLE * HERTZ
    return Peaks(moved, moved, moved, moved, moved, PRODUCT_FLOPS_PER_CYCLE * HERTZ if products else 0.0)
