"""The floors: how large an error may be where the reference happens to make none, by kind of op and dtype.

A floor is a share of the output's scale S = max|o|. The rule that uses it is in `accuracy`. The kind of an op is found
from its operators (`runner/op_traits.py`). `docs/accuracy.md` explains the table, and a test compares the two.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..protocol import input_families
from ..protocol.traits import EPSILON, Traits

SUMMING = ("reduction", "scan", "matmul", "other")

REAL = {"complex64": "float32", "complex128": "float64"}  # a complex number's parts are held to their own type

_ROUNDING = {"float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2}
FLOORS: dict[str, dict[str, float]] = {
    # The op only moves, selects or compares values: nothing is rounded, so nothing may differ.
    "exact": dict.fromkeys(EPSILON, 0.0),
    # 16 ulp: several steps of polynomials that are good to 2-4 ulp, reciprocals, contraction to FMA.
    "elementwise": {**_ROUNDING, "float32": 2e-6},
    # 84 ulp: another order of summation, other blocks, one-pass against two-pass statistics.
    **{kind: {**_ROUNDING, "float32": 1e-5} for kind in SUMMING},
}

# A plain loop that adds n terms one after the other has a relative error of about eps * sqrt(n) / 4 (random rounding).
# Twice that is allowed, which exceeds the table from 28,000 float32 terms on. Half types accumulate in float32.
LONG_SUM = 0.5
CEILINGS = {"float64": 1e-12, "float32": 5e-5}

# Equal terms all round the same way, so the error of a sum grows with the terms of one accumulator, not their square
# root: by about eps / 8 a term, in each output alike (the root mean square may be half a floor). The floor covers 5,000
# terms in each accumulator, which is 65,536 in 16 of them, and is a third of TF32's rounding. Families with
# repeated values get it. They do not have to tell narrower types, which the others do.
EQUAL_TERMS = {"float64": 3e-13, "float32": 1.6e-4}

# If the reference's distance from the float64 run exceeds this share of the output (root mean squares), the float64 run
# shows another result, not the reference's rounding: it draws random numbers in another type, or a step depends on the
# type. Then it is not used as the oracle.
ORACLE_LIMITS = {"float64": 1e-6, "float32": 1e-2, "float16": 0.1, "bfloat16": 0.25}


# Where a mean is 16 times the deviation from it, a variance in one pass (E[x^2] - E[x]^2) loses digits: LayerNorm of
# 8,192 terms in one accumulator was off by 4e-3 of the largest at 32 times. That family finds what is wrong altogether.
FAR_TERMS = {"float64": 1e-11, "float32": 4e-3}

_FLOORS_OF_SUMS = {
    input_families.TIES: EQUAL_TERMS,
    input_families.ROWS: EQUAL_TERMS,
    input_families.COLUMNS: EQUAL_TERMS,
    input_families.FAR: FAR_TERMS,
}
"""The least floors of sums in families in which many of the terms are equal (a softmax over zeros), or nearly so."""


@dataclass(frozen=True)
class Tolerances:
    """The floors of one task: the table's, or those that the task declares."""

    traits: Traits = field(default_factory=Traits)
    declared: Mapping[str, float] = field(default_factory=dict)
    family: str = input_families.GENERATED

    def on(self, family: str) -> "Tolerances":
        """The tolerances on the inputs of one family."""
        return replace(self, family=family)

    def floor(self, dtype: str) -> float:
        """The floor for outputs of a floating-point or complex dtype, as a share of the output's scale."""
        dtype = self.judged_as(dtype)
        if dtype in self.declared:
            return self.declared[dtype]
        kind = self.traits.kind
        floor = FLOORS[kind][dtype]
        if kind in SUMMING and dtype in CEILINGS:
            long = LONG_SUM * EPSILON[dtype] * math.sqrt(self.traits.terms)
            of_family = _FLOORS_OF_SUMS.get(self.family, {}).get(dtype, 0.0)
            floor = max(floor, min(long, CEILINGS[dtype]), of_family)
        return floor

    def judged_as(self, dtype: str) -> str:
        """The dtype whose rounding counts: the output's, or a coarser one that the op itself narrows to on the way."""
        dtype = REAL.get(dtype, dtype)
        narrowest = self.traits.narrowest
        return narrowest if narrowest is not None and EPSILON[narrowest] > EPSILON[dtype] else dtype

    def may_differ(self, dtype: str) -> float:
        """The share of elements of an integer or boolean output that may differ by one; 0 unless declared."""
        return self.declared.get(dtype, 0.0)

    def oracle_limit(self, dtype: str) -> float:
        """How far the float64 run may lie from the reference and still be its oracle, as a share of the output."""
        return ORACLE_LIMITS[self.judged_as(dtype)]

    def to_json(self, dtypes: list[str]) -> dict[str, Any]:
        """The report on tolerances: the kind, the terms of the longest sum, and the floor of each dtype in `dtypes`."""
        floats = sorted({dtype for dtype in dtypes if REAL.get(dtype, dtype) in EPSILON})
        return {
            "kind": self.traits.kind,
            "terms": self.traits.terms,
            "floors": {dtype: self.floor(dtype) for dtype in floats},
            "declared": dict(self.declared),
        }


USUAL = Tolerances()
