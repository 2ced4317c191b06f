"""What the array machine's instructions take, in cycles.

In a cycle the machine moves `MEMORY_BYTES_PER_CYCLE` bytes between memory and its arrays, or works on `LANES` elements,
or makes `PRODUCT_FLOPS_PER_CYCLE` floating-point operations of a matrix product. Starting a program takes
`START_CYCLES`.
"""

import math

HERTZ = 1e9
"""The nominal rate: a cycle is shown as a nanosecond."""

START_CYCLES = 200
MEMORY_BYTES_PER_CYCLE = 32
LANES = 16
PRODUCT_FLOPS_PER_CYCLE = 256


def memory_cycles(moved_bytes: int) -> int:
    """Cycles to move so many bytes between memory and the machine."""
    return math.ceil(moved_bytes / MEMORY_BYTES_PER_CYCLE)


def lane_cycles(elements: int, each: int) -> int:
    """Cycles of an instruction that takes `each` for a group of `LANES` elements."""
    return math.ceil(elements / LANES) * each


def product_cycles(flops: int) -> int:
    """Cycles of so many floating-point operations of matrix products."""
    return math.ceil(flops / PRODUCT_FLOPS_PER_CYCLE)
