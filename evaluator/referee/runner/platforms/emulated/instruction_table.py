"""What the parts of torch's operators take where torch does not run: the form of a platform's table."""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class InstructionTable:
    """See `operator_counts.CountTable`. All are executed instructions, at all vector lengths together.

    Attributes:
        start: to call a kernel at each of the vector lengths.
        per_byte: to load or store a byte.
        per_flop: for a multiplication or addition of a matrix product, with what it loads and stores.
        per_element: by part, for an element, beside what moving it takes.
    """

    start: int
    per_byte: float
    per_flop: float
    per_element: Mapping[str, float]

    def moved(self, nbytes: int) -> int:
        """As a loop that copies."""
        return math.ceil(self.per_byte * nbytes)

    def has(self, name: str) -> bool:
        """Whether there is a loop for it."""
        return name in self.per_element

    def lanes(self, elements: int, name: str | None) -> int:
        """As its loop; what moves or compares values takes what the larger of two takes."""
        return math.ceil(self.per_element[name or "maximum"] * elements)

    def product(self, flops: int) -> int:
        """As three nested loops, the innermost one along a row."""
        return math.ceil(self.per_flop * flops)
