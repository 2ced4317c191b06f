"""How large an error may be where the reference itself happens to make none: one table, by kind of op and dtype.

`docs/accuracy.md` explains it for people; a test holds the two together. A floor is a share of the output's scale
S = max|o|. The rule that uses it is in `accuracy`; what kind an op is, its operators tell (`runner/op_traits.py`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..protocol.traits import EPSILON, Traits

SUMMING = ("reduction", "scan", "matmul", "other")

REAL = {"complex64": "float32", "complex128": "float64"}  # a complex number's parts are held to their own type

_ROUNDING = {"float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2}
FLOORS: dict[str, dict[str, float]] = {
    # Values are moved, selected or compared: nothing is rounded, so nothing may differ.
    "exact": dict.fromkeys(EPSILON, 0.0),
    # 16 ulp: several steps of polynomials good to 2-4 ulp, reciprocals, contraction to FMA.
    "elementwise": {**_ROUNDING, "float32": 2e-6},
    # 84 ulp: another order of summation, other blocks, one-pass against two-pass statistics.
    **{kind: {**_ROUNDING, "float32": 1e-5} for kind in SUMMING},
}

# A plain loop that adds n terms one after the other errs by about eps sqrt(n) / 4 of the result (random rounding);
# twice that is allowed, which exceeds the table from 28,000 float32 terms on. Half types accumulate in float32.
LONG_SUM = 0.5
CEILINGS = {"float64": 1e-12, "float32": 5e-5}

# Beyond this share of the output (root mean square) the float64 run does not show the reference's rounding but another
# result: random numbers drawn in another type, or a step that depends on the type. Then it is no oracle.
ORACLE_LIMITS = {"float64": 1e-6, "float32": 1e-2, "float16": 0.1, "bfloat16": 0.25}

DECLARED_MAX = 0.1  # a declared tolerance at or above this would let constants pass


@dataclass(frozen=True)
class Tolerances:
    """The floors of one task: from the table, unless the task declares its own."""

    traits: Traits = field(default_factory=Traits)
    declared: Mapping[str, float] = field(default_factory=dict)

    def floor(self, dtype: str) -> float:
        """The floor for outputs of a floating-point or complex dtype, as a share of the output's scale."""
        dtype = self.judged_as(dtype)
        if dtype in self.declared:
            return self.declared[dtype]
        kind = self.traits.kind
        floor = FLOORS[kind][dtype]
        if kind in SUMMING and dtype in CEILINGS:
            long = LONG_SUM * EPSILON[dtype] * math.sqrt(self.traits.terms)
            floor = max(floor, min(long, CEILINGS[dtype]))
        return floor

    def judged_as(self, dtype: str) -> str:
        """The dtype whose rounding counts: that of the output, or what the op itself narrows to on the way."""
        dtype = REAL.get(dtype, dtype)
        narrowest = self.traits.narrowest
        return narrowest if narrowest is not None and EPSILON[narrowest] > EPSILON[dtype] else dtype

    def may_differ(self, dtype: str) -> float:
        """The share of elements of an integer or boolean output that may differ by one: none unless declared."""
        return self.declared.get(dtype, 0.0)

    def oracle_limit(self, dtype: str) -> float:
        """How far the float64 run may lie from the reference and still count as its oracle."""
        return ORACLE_LIMITS[self.judged_as(dtype)]

    def to_json(self, dtypes: list[str]) -> dict[str, Any]:
        """What a report says: the kind, its longest sum, and the floor of each of the outputs' dtypes."""
        floats = sorted({dtype for dtype in dtypes if REAL.get(dtype, dtype) in EPSILON})
        return {
            "kind": self.traits.kind,
            "terms": self.traits.terms,
            "floors": {dtype: self.floor(dtype) for dtype in floats},
            "declared": dict(self.declared),
        }


USUAL = Tolerances()
