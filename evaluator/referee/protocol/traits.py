"""What watching an op's operators shows about it, as the reference runner reports it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KINDS = ("exact", "elementwise", "reduction", "scan", "matmul", "other")

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class Traits:
    """What watching the reference's operators showed: decides the row of the table."""

    kind: str = "other"
    terms: int = 1  # most terms that one sum has
    narrowest: str | None = None  # coarsest type that the op itself converts to and makes something of another type of
    unstable_ties: bool = False  # the order of equal values is not defined (sort, topk)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Traits":
        """Read what the reference's runner says, taking nothing on trust that a table is indexed by."""
        kind, narrowest, terms = data.get("kind"), data.get("narrowest"), data.get("terms")
        return cls(
            kind=kind if kind in KINDS else "other",
            terms=max(1, terms) if isinstance(terms, int) else 1,
            narrowest=narrowest if narrowest in EPSILON else None,
            unstable_ties=bool(data.get("unstable_ties")),
        )
