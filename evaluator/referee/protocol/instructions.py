"""What is counted on platform `riscv`, and the least that a call can take.

A call's figure is the number of instructions that the kernels execute at the vector lengths of `VLENS`, added up. An
instruction is one, whatever it does: a division is no dearer than an addition, and one that works on a group of eight
registers is no dearer than one that works on a single element.
"""

from .peaks import Peaks

VLENS = (128, 256, 512)
"""Bits of a vector register: each program is run, judged and counted at all of them."""

HERTZ = 1e9
"""The nominal rate, by which an instruction is stored as a nanosecond. It says nothing of time."""

_GROUP = 8  # registers that one instruction works on at most
BYTES_PER_INSTRUCTION = 1 / sum(8 / (_GROUP * vlen) for vlen in VLENS)
"""That are moved at best, with a load or store of a whole group at each vector length."""

FLOPS_PER_INSTRUCTION = 2 * BYTES_PER_INSTRUCTION / 4
"""Of float32 at best: a multiply-add of each element."""


def peaks(*, products: bool) -> Peaks:
    """What the machine can do at best, at the nominal rate; `products`: whether a call has matrix products."""
    moved = BYTES_PER_INSTRUCTION * HERTZ
    return Peaks(moved, moved, moved, moved, moved, FLOPS_PER_INSTRUCTION * HERTZ if products else 0.0)
