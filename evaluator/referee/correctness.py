"""The first half of a trial: is the candidate right on every input family, and does it leave what is not its own?"""

import random
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from . import accuracy, oracle, perturb
from .accuracy import Allowance, Comparison, Wrong, flatten
from .bench import Bench
from .errors import Own, own_error
from .handle import Call, Handle, InputSet, RunnerFailed, tensor
from .inbox import Inbox, bytes_needed
from .processes import same_bytes
from .tolerances import Tolerances, Traits
from .tree import TensorRow, Tree
from .verdicts import Finding, of_candidate, of_task

_SKIPPED = "skipped: "
_MAX_GROUPS = 8


@dataclass
class Evidence:
    """What correctness checking leaves for the report and for checking timed calls."""

    checks: list[dict[str, Any]] = field(default_factory=list)
    worst: dict[str, Any] | None = None
    worst_severity: float = -1.0
    allowances: dict[str, Allowance] = field(default_factory=dict)
    mutated: set[int] = field(default_factory=set)  # inputs that the reference itself changes
    expected: Tree | None = None
    output_bytes: int = 0
    oracle_note: str = ""
    tolerances: Tolerances = field(default_factory=Tolerances)
    input_rows: tuple[TensorRow, ...] = ()
    kernelbench: list[bool] = field(default_factory=list)  # for each input set: whether that rule accepts it
    no_oracle: set[str] = field(default_factory=set)  # outputs of which the float64 run gives another result

    def add(self, check: dict[str, Any], severity: float) -> None:
        """Record one check."""
        self.checks.append(check)
        if severity > self.worst_severity:
            self.worst, self.worst_severity = check, severity

    def to_json(self) -> dict[str, Any]:
        """The `correctness` object of an evaluation."""
        leaves = flatten(self.expected).values() if self.expected is not None else ()
        dtypes = [leaf.dtype for leaf in leaves if isinstance(leaf, TensorRow)]
        return {
            "checks": self.checks,
            "worst": self.worst,
            "tolerance": self.tolerances.to_json(dtypes),
            "kernelbench": self._kernelbench(),
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
    def families(self) -> int:
        """How many families the candidate was really held to."""
        return sum(not check["note"].startswith(_SKIPPED) for check in self.checks)

    def skip(self, family: str, reason: str) -> None:
        """Record a family that was left out."""
        self.add(_check(family, True, note=f"{_SKIPPED}{reason}"), -1.0)


@dataclass(frozen=True)
class Expected:
    """The reference's outputs on one set of inputs, with the oracle's."""

    tree: Tree
    values: dict[str, torch.Tensor]
    oracle: dict[str, torch.Tensor]
    inputs_after: dict[int, torch.Tensor]
    own: dict[str, Own]  # the reference's own errors


def examine(bench: Bench, reference: Handle, candidate: Handle, evidence: Evidence) -> None:
    """Run every family through reference, oracle and candidate.

    Raises:
        Finding: the candidate is wrong, or the task is invalid.
    """
    evidence.tolerances = Tolerances(declared=bench.request.tolerance)
    examination = Examination(bench, reference, candidate, evidence)
    for family in perturb.FAMILIES:
        examination.family(family)
    for family in _shape_groups(bench, reference):
        examination.family(family)
    examination.settle()


@dataclass
class Examination:
    """One candidate beside its reference, family after family."""

    bench: Bench
    reference: Handle
    candidate: Handle
    evidence: Evidence
    earlier: list[tuple[TensorRow, torch.Tensor]] = field(default_factory=list)  # outputs of the call before
    roomy: bool = False  # whether the inboxes are larger than the task's own inputs need

    def family(self, family: str) -> None:
        """Run one family, or note why it is left out."""
        reason = self._skipped(family)
        if reason:
            self.evidence.skip(family, reason)
            return
        try:
            inputs = self.bench.make_inputs(self.reference, family)
        except Finding as finding:
            if not family.startswith(perturb.GROUP) or finding.code != "out_of_memory":
                raise
            self.reference.ask({"op": "release"}, timeout_s=60)
            self.evidence.skip(family, "too large for the sandbox's memory")
            return
        self._make_room(inputs)
        want = consult(self.bench, self.reference, inputs, self.evidence, first=self.evidence.expected is None)
        reason = _says_nothing(family, want, self.evidence)
        if reason:
            self.evidence.skip(family, reason)
            return
        self._judge(family, inputs, want)
        if family.startswith(perturb.GENERATED):
            _allow(want, self.evidence)

    def settle(self) -> None:
        """Leave both runners as timing wants them."""
        self.candidate.ask({"op": "release"}, timeout_s=60)
        if self.roomy:
            for handle in (self.reference, self.candidate):
                handle.attach(Inbox(self.bench.input_bytes, self.bench.slots()))

    def _skipped(self, family: str) -> str:
        dtypes = [row.dtype for row in self.evidence.input_rows]
        if family == perturb.TIES and self.evidence.tolerances.traits.unstable_ties:
            return "which of several equal values comes first is not defined for this op"
        return perturb.skipped(family, self.bench.request.domain, dtypes)

    def _make_room(self, inputs: InputSet) -> None:
        self.evidence.input_rows = self.evidence.input_rows or inputs.tree.tensors
        needed = bytes_needed(inputs.tree)
        if needed > self.bench.input_bytes:
            self.roomy = True
            for handle in (self.reference, self.candidate):
                handle.attach(Inbox(needed, 1))

    def _judge(self, family: str, inputs: InputSet, want: "Expected") -> None:
        candidate, timeout_s = self.candidate, self.bench.request.call_timeout_s
        try:
            call = candidate.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s, keep=True)
            if "kernelbench" in self.bench.request.rules and family.startswith(perturb.GENERATED):
                self.evidence.kernelbench.append(_kernelbench(candidate, call, want))
            _judge(family, candidate, call, want, inputs, self.evidence)
            for row, content in self.earlier:
                if not same_bytes(candidate.read(row), content):
                    raise Finding(
                        "wrong_output", "an output of an earlier call changed during a later one", "buffer_reused"
                    )
            self.earlier = [(row, candidate.read(row)) for row in call.outputs.tensors][:8]
        except RunnerFailed as failure:
            raise of_candidate(failure, building=False, doing=f"calling the candidate ({family})") from None


def _shape_groups(bench: Bench, reference: Handle) -> list[str]:
    """The families of the task's other shapes; of many, some that nobody could know before."""
    if not bench.request.shape_groups:
        return []
    message = {"op": "inputs", "seed": 1, "family": perturb.COUNT_GROUPS}
    try:
        count = reference.reveal(message, timeout_s=60).spec.get("scalar")
    except RunnerFailed as failure:
        raise of_task(failure, doing="get_input_groups()") from None
    if not isinstance(count, int) or count < 1:
        raise Finding("task_invalid", "get_input_groups() returns no list of input lists", "shape_groups")
    chosen = list(range(count))
    if count > _MAX_GROUPS:
        rng = random.Random(bench.seeds.named("shape groups"))  # noqa: S311 - which shapes to look at
        chosen = sorted(rng.sample(chosen, _MAX_GROUPS))
    return [f"{perturb.GROUP}{number}" for number in chosen]


def _says_nothing(family: str, want: "Expected", evidence: Evidence) -> str:
    """Why the outputs for these inputs are no ground to judge on; empty if they are."""
    if family == perturb.NON_FINITE:
        return ""
    if _mostly_non_finite(want):
        return "the reference itself overflows here"
    if not family.startswith(perturb.GENERATED):
        for path, own in want.own.items():
            if own.distance > _oracle_limit(want.values[path], evidence):
                return f"the reference itself is off by {own.distance:.1%} here"
    return ""


def _kernelbench(candidate: Handle, call: Call, want: "Expected") -> bool:
    if accuracy.compare_form(want.tree, call.outputs) is not None:
        return False
    have = flatten(call.outputs)
    return all(accuracy.kernelbench(value_of(candidate, have[path]), value) for path, value in want.values.items())


def consult(bench: Bench, reference: Handle, inputs: InputSet, evidence: Evidence, *, first: bool) -> Expected:
    """What the reference and the oracle say; `first` also runs the reference twice, to see that it agrees with itself.

    Raises:
        Finding: the reference fails or disagrees with itself.
    """
    timeout_s = max(60.0, bench.request.call_timeout_s)
    try:
        call = reference.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s)
        values = {path: value_of(reference, row) for path, row in flatten(call.outputs).items()}
        after = _mutations(reference, call, inputs)
        if first:
            evidence.expected = call.outputs
            evidence.output_bytes = sum(row.span_bytes for row in call.outputs.tensors)
            evidence.mutated = set(after)
            again = reference.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s)
            _agrees_with_itself(again, reference, values)
    except RunnerFailed as failure:
        raise of_task(failure, doing="its forward pass") from None
    wide = _ask_oracle(reference, inputs, values, evidence, timeout_s=4 * timeout_s, first=first)
    reference.ask({"op": "release"}, timeout_s=60)
    own = {path: own_error(value, wide.get(path)) for path, value in values.items() if accuracy.is_rounded(value)}
    return Expected(call.outputs, values, wide, after, own)


def _ask_oracle(
    reference: Handle,
    inputs: InputSet,
    values: dict[str, torch.Tensor],
    evidence: Evidence,
    *,
    timeout_s: float,
    first: bool,
) -> dict[str, torch.Tensor]:
    """The float64 outputs by path, without those that are no oracle; `first` also reads what kind of op it is."""
    try:
        assert reference.inbox is not None
        placed = reference.inbox.put(inputs.tree, inputs.contents)
        message = {"op": "oracle", "tree": placed.to_json(), "seed": inputs.seed}
        answer = flatten(reference.reveal(message, timeout_s=timeout_s))
        outputs, traits = oracle.parts(answer)
        wide = {path: value_of(reference, row) for path, row in outputs.items()}
    except RunnerFailed as failure:
        if failure.kind not in ("error", "output", "out_of_memory"):
            raise of_task(failure, doing="its float64 run") from None
        evidence.oracle_note = f"no float64 oracle ({failure.message[:160]}); compared with the reference itself"
        return {}
    if first:
        evidence.tolerances = replace(evidence.tolerances, traits=Traits.from_json(traits))
    if any(path not in wide or wide[path].shape != value.shape for path, value in values.items()):
        evidence.oracle_note = "the float64 run returns other shapes; compared with the reference itself"
        return {}
    if first:
        evidence.no_oracle = {
            path
            for path, value in values.items()
            if accuracy.is_rounded(value) and own_error(value, wide[path]).distance > _oracle_limit(value, evidence)
        }
        if evidence.no_oracle:
            names = ", ".join(f"output{path}" for path in sorted(evidence.no_oracle))
            evidence.oracle_note = (
                f"the float64 run gives another result for {names[:200]}; compared with the reference itself"
            )
    return {path: value for path, value in wide.items() if path not in evidence.no_oracle}


def _oracle_limit(value: torch.Tensor, evidence: Evidence) -> float:
    return evidence.tolerances.oracle_limit(str(value.dtype).removeprefix("torch."))


def _judge(family: str, candidate: Handle, call: Call, want: Expected, inputs: InputSet, evidence: Evidence) -> None:
    wrong = accuracy.compare_form(want.tree, call.outputs)
    if wrong is not None:
        _refuse(family, wrong, evidence)
    worst: Comparison | None = None
    have = flatten(call.outputs)
    for path, expected in want.values.items():
        found = accuracy.compare(
            path,
            value_of(candidate, have[path]),
            expected,
            want.oracle.get(path),
            evidence.tolerances,
            want.own.get(path),
            slack=perturb.slack(family),
            nan_for_inf=family == perturb.NON_FINITE,
        )
        if found.wrong is not None:
            _refuse(family, found.wrong, evidence, found)
        if worst is None or found.severity > worst.severity:
            worst = found
    _inputs_left_alone(family, candidate, call, want, inputs, evidence)
    if worst is not None:
        check = _check(family, True, worst, evidence.oracle_note)
        evidence.add(check, worst.severity)


def _refuse(family: str, wrong: Wrong, evidence: Evidence, found: Comparison | None = None) -> None:
    evidence.add(_check(family, False, found, wrong.message), float("inf"))
    raise Finding("wrong_output", f"{wrong.message} (inputs: {family})", wrong.code)


def _inputs_left_alone(
    family: str, candidate: Handle, call: Call, want: Expected, inputs: InputSet, evidence: Evidence
) -> None:
    changed = _mutations(candidate, call, inputs)
    for index, content in changed.items():
        if index not in want.inputs_after:
            _refuse(family, Wrong("input_mutated", f"input tensor {index} was changed by the call"), evidence)
        row = inputs.tree.tensors[index]
        have, wanted = tensor(row, content), tensor(row, want.inputs_after[index])
        found = accuracy.compare(f" input {index}", have, wanted, None, evidence.tolerances)
        if found.wrong is not None:
            _refuse(family, found.wrong, evidence, found)
    if missing := set(want.inputs_after) - set(changed):
        text = f"the reference changes input tensor {min(missing)} in place, the candidate does not"
        _refuse(family, Wrong("input_mutated", text), evidence)


def _mutations(handle: Handle, call: Call, inputs: InputSet) -> dict[int, torch.Tensor]:
    assert handle.inbox is not None
    return {
        index: handle.inbox.copy(row)
        for index, (row, content) in enumerate(zip(call.placed.tensors, inputs.contents, strict=True))
        if not handle.inbox.unchanged(row, content)
    }


def _agrees_with_itself(again: Call, reference: Handle, values: dict[str, torch.Tensor]) -> None:
    for path, leaf in flatten(again.outputs).items():
        value = value_of(reference, leaf)
        first = values.get(path)
        if first is None or first.shape != value.shape:
            raise Finding("task_invalid", "two calls on the same inputs return other shapes", "nondeterministic")
        # Threads may add in another order; anything beyond rounding is a reference that nobody can match.
        if not accuracy.within(value, first, _rounding(first)):
            raise Finding(
                "task_invalid",
                f"output{path} differs between two calls on the same inputs and seed",
                "nondeterministic",
            )


def _rounding(value: torch.Tensor) -> Allowance:
    return accuracy.allowance(value, None)


def _allow(want: Expected, evidence: Evidence) -> None:
    for path, value in want.values.items():
        new = accuracy.allowance(value, want.oracle.get(path), evidence.tolerances, want.own.get(path))
        old = evidence.allowances.get(path, new)
        evidence.allowances[path] = replace(
            new, max_error=max(new.max_error, old.max_error), rms_error=max(new.rms_error, old.rms_error)
        )


def _mostly_non_finite(want: Expected) -> bool:
    floats = [value for value in want.values.values() if value.is_floating_point()]
    return any(value.numel() > 0 and float(torch.isfinite(value).float().mean()) < 0.5 for value in floats)


def value_of(handle: Handle, leaf: Any) -> torch.Tensor:
    """A leaf of a runner's outputs as a tensor: read out of its memory, or made of the scalar that it sent."""
    if isinstance(leaf, TensorRow):
        return tensor(leaf, handle.read(leaf))
    number = leaf if isinstance(leaf, bool | int | float) else hash(str(leaf)) % 2**31
    return torch.tensor([number], dtype=torch.float64 if isinstance(leaf, float) else torch.int64)


def _check(family: str, passed: bool, found: Comparison | None = None, note: str = "") -> dict[str, Any]:
    finite = found if found is not None and found.max_error != float("inf") else None
    return {
        "inputs": family,
        "passed": passed,
        "max_error": None if finite is None else finite.max_error,
        "allowed_error": None if finite is None else finite.allowed_error,
        "note": note,
    }
