"""The first half of a trial: is the candidate right on every input family, and does it leave what is not its own?"""

import random
from dataclasses import dataclass, field, replace

import torch

from . import accuracy, perturb
from .accuracy import Comparison, Wrong, flatten
from .bench import Bench
from .consult import Expected, consult, mutations, oracle_limit, value_of
from .evidence import Evidence, check
from .handle import Call, Handle, InputSet, RunnerFailed, tensor
from .inbox import Inbox, bytes_needed
from .processes import same_bytes
from .tolerances import Tolerances
from .tree import TensorRow
from .verdicts import Finding, of_candidate, of_task

_MAX_GROUPS = 8


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

    def _judge(self, family: str, inputs: InputSet, want: Expected) -> None:
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


def _says_nothing(family: str, want: Expected, evidence: Evidence) -> str:
    """Why the outputs for these inputs are no ground to judge on; empty if they are."""
    if family == perturb.NON_FINITE:
        return ""
    if any(own.finite < 0.5 and want.values[path].numel() > 0 for path, own in want.own.items()):
        return "the reference itself overflows here"
    if not family.startswith(perturb.GENERATED):
        for path, own in want.own.items():
            if own.distance > oracle_limit(want.values[path], evidence):
                return f"the reference itself is off by {own.distance:.1%} here"
    return ""


def _kernelbench(candidate: Handle, call: Call, want: Expected) -> bool:
    if accuracy.compare_form(want.tree, call.outputs) is not None:
        return False
    have = flatten(call.outputs)
    return all(accuracy.kernelbench(value_of(candidate, have[path]), value) for path, value in want.values.items())


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
        evidence.add(check(family, True, worst, evidence.oracle_note), worst.severity)


def _refuse(family: str, wrong: Wrong, evidence: Evidence, found: Comparison | None = None) -> None:
    evidence.add(check(family, False, found, wrong.message), float("inf"))
    raise Finding("wrong_output", f"{wrong.message} (inputs: {family})", wrong.code)


def _inputs_left_alone(
    family: str, candidate: Handle, call: Call, want: Expected, inputs: InputSet, evidence: Evidence
) -> None:
    changed = mutations(candidate, call, inputs)
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


def _allow(want: Expected, evidence: Evidence) -> None:
    for path, value in want.values.items():
        new = accuracy.allowance(value, want.oracle.get(path), evidence.tolerances, want.own.get(path))
        old = evidence.allowances.get(path, new)
        evidence.allowances[path] = replace(
            new, max_error=max(new.max_error, old.max_error), rms_error=max(new.rms_error, old.rms_error)
        )
