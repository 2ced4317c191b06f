"""The traits of an op: facts about the operators that it calls, as the reference's runner reports them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KINDS = ("exact", "elementwise", "reduction", "scan", "matmul", "other")

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class Traits:
    """The traits of an op. `kind` selects the row in the table of floors."""

    kind: str = "other"
    terms: int = 1  # terms of the longest sum
    narrowest: str | None = None  # coarsest type that the op converts to and then computes a value of a finer type from
    unstable_ties: bool = False  # the order of equal values is not defined (sort, topk)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Traits":
        """Read the traits that a runner reports. Values that index a table are checked."""
        kind, narrowest, terms = data.get("kind"), data.get("narrowest"), data.get("terms")
        return cls(
            kind=kind if kind in KINDS else "other",
            terms=max(1, terms) if isinstance(terms, int) else 1,
            narrowest=narrowest if narrowest in EPSILON else None,
            unstable_ties=bool(data.get("unstable_ties")),
        )
