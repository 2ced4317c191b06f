"""What is counted on platforms `riscv` and `arm64`, and the least that a call can take.

A call's figure is the number of instructions that the kernels execute at the vector lengths of `VLENS`, added up. An
instruction is one, whatever it does: a division is no dearer than an addition, and one that works on several registers
is no dearer than one that works on a single element.
"""

from dataclasses import dataclass

from .peaks import Peaks

VLENS = (128, 256, 512)
"""Bits of a vector register: each program is run, judged and counted at all of them."""

HERTZ = 1e9
"""The nominal rate, by which an instruction is stored as a nanosecond. It says nothing of time."""


@dataclass(frozen=True)
class Widest:
    """What one instruction does at best on vectors.

    Attributes:
        moved_registers: that a load or store fills or writes.
        computed_registers: that an instruction on floats works on.
        flops: for each element of float32 there.
    """

    moved_registers: int
    computed_registers: int
    flops: int

    @property
    def moved_bytes(self) -> float:
        """For an instruction, with as many bytes moved at each of the vector lengths."""
        return _bytes_per_instruction(self.moved_registers)

    @property
    def computed_flops(self) -> float:
        """Of float32 for an instruction, with as many at each of the vector lengths."""
        return self.flops * _bytes_per_instruction(self.computed_registers) / 4


RISCV = Widest(moved_registers=8, computed_registers=8, flops=2)
"""Groups of eight registers, and a multiply-add."""

ARM64 = Widest(moved_registers=4, computed_registers=1, flops=4)
"""`ld4w` and `st4w`, and a product of 2x2 matrices in each 128 bits (`fmmla`)."""


def _bytes_per_instruction(registers: int) -> float:
    return 1 / sum(8 / (registers * vlen) for vlen in VLENS)


def peaks(widest: Widest = RISCV, *, products: bool) -> Peaks:
    """What the machine can do at best, at the nominal rate; `products`: whether a call has matrix products."""
    moved = widest.moved_bytes * HERTZ
    return Peaks(moved, moved, moved, moved, moved, widest.computed_flops * HERTZ if products else 0.0)
