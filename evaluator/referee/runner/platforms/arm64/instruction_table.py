"""What the parts of torch's operators take on platform `arm64`: the table of its eager baseline.

Torch does not run on the machine, so eager is a translation: each operator becomes plain C loops over float32 arrays,
as clang vectorises them (`-O3 -ffast-math`), with the mathematical functions of the C library. The loops were counted
on this machine (`benchmarks/emulated_reference.py`; a test counts them again), at all vector lengths together.
"""

from collections.abc import Mapping

from ..emulated.instruction_table import InstructionTable

START = 120
"""To call a kernel at each of the vector lengths."""

PER_BYTE = 0.248
"""To load or store a byte."""

PER_FLOP = 1.764
"""A multiplication or addition of a matrix product, with what it loads and stores."""

PER_ELEMENT: Mapping[str, float] = {
    "negative": 0.218,
    "absolute": 0.218,
    "relu": 0.218,
    "reciprocal": 0.218,
    "sqrt": 0.218,
    "rsqrt": 0.656,
    "exp": 94.033,
    "log": 124.033,
    "tanh": 353.851,
    "erf": 212.892,
    "sigmoid": 96.283,
    "convert": 0.218,
    "add": 0.103,
    "subtract": 0.103,
    "multiply": 0.103,
    "divide": 0.103,
    "maximum": 0.322,
    "minimum": 0.322,
    "less": 0.978,
    "equal": 0.978,
    "multiply_add": 0.0,
    "select": 18.549,
    "sum": 0.553,
    "maximum_of": 0.553,
    "minimum_of": 0.553,
}
"""By part, for an element, beside what moving it takes."""

INSTRUCTION_TABLE = InstructionTable(START, PER_BYTE, PER_FLOP, PER_ELEMENT)
