"""What the correctness check records about a candidate: for the report, and for checking timed calls."""

from dataclasses import dataclass, field, replace
from typing import Any

from ..protocol.tensors import TensorRow, Tree
from ..protocol.traits import EPSILON
from . import accuracy
from .accuracy import Allowance, Comparison, flatten
from .call_outputs import Form
from .state_check import Names
from .tolerances import Tolerances

SKIPPED = "skipped: "


@dataclass
class Evidence:
    """The record of the correctness check of one candidate."""

    checks: list[dict[str, Any]] = field(default_factory=list)
    worst: dict[str, Any] | None = None
    worst_severity: float = -1.0
    allowances: dict[str, Allowance] = field(default_factory=dict)
    mutated: set[int] = field(default_factory=set)  # inputs that the reference itself changes
    form: Form | None = None  # of the reference's outputs, once it has been asked
    output_bytes: int = 0
    oracle_note: str = ""
    tolerances: Tolerances = field(default_factory=Tolerances)
    input_rows: tuple[TensorRow, ...] = ()
    kernelbench: list[bool] = field(default_factory=list)  # for each input set: whether that rule accepts it
    no_oracle: set[str] = field(default_factory=set)  # outputs for which the float64 run gives another result
    overwrites: bool = False  # whether outputs are overwritten after reading; not if the reference reads its own again
    numbers: set[str] = field(default_factory=set)  # outputs that are Python floats
    may_turn_negative: bool = False  # whether a generated input holds no negative number and is no mask
    always_same: bool = False  # whether an input tensor is the same under two seeds
    has_nan: bool = False  # whether the reference gives NaN on the task's own inputs
    names: Names = field(default_factory=Names)  # the names of the candidate's parameters
    changing: frozenset[str] = frozenset()  # state that the reference's calls change and that the candidate has, too
    state: dict[str, Any] | None = None  # the report on the model's state
    spot_checks: dict[str, int] = field(default_factory=dict)  # how many there were among the timed calls, by family
    group_trees: list[Tree] = field(default_factory=list)  # the inputs of the task's other shapes that were judged
    neighbours: dict[str, Any] | None = None  # what the candidate makes of inputs beside the task's own

    def tolerances_for(self, path: str) -> Tolerances:
        """The tolerances of one output. A Python float is a float64, but only as exact as the tensor it came from."""
        if path not in self.numbers:
            return self.tolerances
        floats = [row.dtype for row in self.input_rows if row.dtype in EPSILON] or ["float32"]
        widest = min(floats, key=lambda dtype: EPSILON[dtype])
        narrowest = max(widest, self.tolerances.traits.narrowest or widest, key=lambda dtype: EPSILON[dtype])
        return replace(self.tolerances, traits=replace(self.tolerances.traits, narrowest=narrowest))

    def add(self, check: dict[str, Any], severity: float) -> None:
        """Record one check."""
        self.checks.append(check)
        if severity > self.worst_severity:
            self.worst, self.worst_severity = check, severity

    def to_json(self) -> dict[str, Any]:
        """The `correctness` object of an evaluation."""
        leaves = flatten(self.form.tree).values() if self.form is not None else ()
        dtypes = [leaf.dtype for leaf in leaves if isinstance(leaf, TensorRow)]
        return {
            "checks": self.checks,
            "worst": self.worst,
            "tolerance": self.tolerances.to_json(dtypes),
            "kernelbench": self._kernelbench(),
            "state": self.state,
            "spot_checks": dict(sorted(self.spot_checks.items())),
            "neighbours": self.neighbours,
        }

    def _kernelbench(self) -> dict[str, Any] | None:
        if not self.kernelbench:
            return None
        return {
            "passed": all(self.kernelbench),
            "input_sets": len(self.kernelbench),
            "rule": "torch.allclose(candidate, reference), atol = rtol",
            "tolerances": dict(accuracy.KERNELBENCH),
        }

    @property
    def judged(self) -> list[str]:
        """The families that the candidate was checked on, without those that were skipped."""
        return [check["inputs"] for check in self.checks if not check["note"].startswith(SKIPPED)]

    @property
    def families(self) -> int:
        """The number of families that the candidate was checked on."""
        return len(self.judged)

    def skip(self, family: str, reason: str) -> None:
        """Record a family that was left out."""
        self.add(check(family, True, note=f"{SKIPPED}{reason}"), -1.0)


def check(family: str, passed: bool, found: Comparison | None = None, note: str = "") -> dict[str, Any]:
    """One check in the form of an evaluation's JSON."""
    finite = found if found is not None and found.max_error != float("inf") else None
    return {
        "inputs": family,
        "passed": passed,
        "max_error": None if finite is None else finite.max_error,
        "allowed_error": None if finite is None else finite.allowed_error,
        "note": note,
    }
