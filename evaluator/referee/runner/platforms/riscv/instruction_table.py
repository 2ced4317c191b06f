"""What the parts of torch's operators take on platform `riscv`: the table of its eager baseline.

Torch does not run on the machine, so eager is a translation: each operator becomes plain C loops over float32 arrays,
as clang vectorises them (`-O3 -ffast-math`), with the mathematical functions of the C library. The loops were counted
on this machine (`benchmarks/emulated_reference.py`; a test counts them again), at all vector lengths together.
"""

from collections.abc import Mapping

from ..emulated.instruction_table import InstructionTable

START = 120
"""To call a kernel at each of the vector lengths."""

PER_BYTE = 0.138
"""To load or store a byte."""

PER_FLOP = 1.165
"""A multiplication or addition of a matrix product, with what it loads and stores."""

PER_ELEMENT: Mapping[str, float] = {
    "negative": 0.435,
    "absolute": 0.435,
    "relu": 0.435,
    "reciprocal": 0.436,
    "sqrt": 0.435,
    "rsqrt": 0.654,
    "exp": 121.904,
    "log": 136.904,
    "tanh": 440.6,
    "erf": 251.916,
    "sigmoid": 142.16,
    "convert": 0.435,
    "add": 0.321,
    "subtract": 0.321,
    "multiply": 0.321,
    "divide": 0.321,
    "maximum": 0.321,
    "minimum": 0.321,
    "less": 1.196,
    "equal": 1.196,
    "multiply_add": 0.206,
    "select": 1.3,
    "sum": 0.552,
    "maximum_of": 0.551,
    "minimum_of": 0.551,
}
"""By part, for an element, beside what moving it takes."""

INSTRUCTION_TABLE = InstructionTable(START, PER_BYTE, PER_FLOP, PER_ELEMENT)
