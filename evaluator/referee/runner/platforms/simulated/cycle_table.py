"""What the parts of torch's operators take on the array machine, in cycles."""

from dataclasses import dataclass

from ....protocol import array_machine as machine
from ....protocol import cycles


@dataclass(frozen=True)
class CycleTable:
    """See `operator_counts.CountTable`."""

    start: int = cycles.START_CYCLES

    def moved(self, nbytes: int) -> int:
        """As the machine loads and stores."""
        return cycles.memory_cycles(nbytes)

    def has(self, name: str) -> bool:
        """Whether the machine has the instruction."""
        return machine.lane_cost(name) is not None

    def lanes(self, elements: int, name: str | None) -> int:
        """As the machine computes; what moves or compares values takes a cycle for each group of elements."""
        return cycles.lane_cycles(elements, 1 if name is None else machine.lane_cost(name) or 0)

    def product(self, flops: int) -> int:
        """As the machine multiplies matrices."""
        return cycles.product_cycles(flops)


CYCLE_TABLE = CycleTable()
