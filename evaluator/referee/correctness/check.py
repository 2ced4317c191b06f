"""The correctness check of a candidate: every input family through the reference, the oracle and the candidate."""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from ..errors import BaselineFailed, Finding, RunnerFailed, of_candidate, of_task
from ..isolation.calls import Call, InputSet, tensor
from ..isolation.handle import RunnerHandle
from ..pool import input_supply
from ..pool.runner_pool import RunnerPool, task_step
from ..protocol import input_families
from ..protocol.call_messages import KEEP_ALL
from ..protocol.tensors import TensorRow, Tree, bytes_needed
from . import accuracy, call_outputs, difference, given_weights, state_check
from .accuracy import Comparison, Wrong, flatten
from .call_outputs import Answer, input_path, value_of
from .findings import Evidence, check
from .reference import Expected, ask_reference, says_nothing
from .tolerances import Tolerances

_MAX_NAMED = 5


def judge(
    family: str, answer: Answer, want: Expected, inputs: InputSet, evidence: Evidence, *, where: str = ""
) -> Comparison | None:
    """Compare the values of outputs and of changed inputs. Their form has been checked before.

    Args:
        family: the input family.
        answer: the candidate's outputs and the inputs that it changed.
        want: the reference's and the oracle's.
        inputs: the inputs of the call.
        evidence: receives a failed check.
        where: what to add to the family's name in the report.

    Returns:
        The comparison that came nearest to failing; None without outputs.

    Raises:
        Finding: a value is wrong.
    """
    worst: Comparison | None = None
    for path, expected in want.values.items():
        found = accuracy.compare(
            path,
            answer.values[path],
            expected,
            want.oracle.get(path),
            evidence.tolerances_for(path).on(family),
            want.own.get(path),
            slack=input_families.slack(family),
            nan_for_inf=family == input_families.NON_FINITE,
        )
        if found.wrong is not None:
            refuse(family + where, found.wrong, evidence, found)
        if worst is None or found.severity > worst.severity:
            worst = found
    _inputs_changed_alike(family, answer, want, inputs, evidence, where)
    return worst


def refuse(family: str, wrong: Wrong, evidence: Evidence, found: Comparison | None = None) -> None:
    """Record a failed check and end the evaluation.

    Raises:
        Finding: always.
    """
    evidence.add(check(family, False, found, wrong.message), float("inf"))
    hint = _hint(evidence) if wrong.code == "values" else ""
    raise Finding("wrong_output", f"{wrong.message} (inputs: {family}){hint}", wrong.code)


def _hint(evidence: Evidence) -> str:
    missing = evidence.names.missing
    if missing:
        return (
            f"; it has no tensor for the reference's {_listed(missing)}: parameters are given new values after "
            "construction"
        )
    if evidence.names.guessed:
        return (
            f"; which of its tensors are the reference's {_listed(evidence.names.guessed)} could only be guessed, for "
            "several hold the same numbers when new: name them as the reference does"
        )
    if evidence.names.own:
        return "; parameters are given new values after construction, so nothing may be derived from them before"
    return ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")


def _inputs_changed_alike(
    family: str, answer: Answer, want: Expected, inputs: InputSet, evidence: Evidence, where: str
) -> None:
    for index, content in answer.changed.items():
        if index not in want.inputs_after:
            refuse(family + where, Wrong("input_mutated", f"input tensor {index} was changed by the call"), evidence)
        path = input_path(index)
        found = accuracy.compare(
            path,
            tensor(inputs.tree.tensors[index], content),
            want.inputs_after[index],
            want.oracle.get(path),
            evidence.tolerances_for(path).on(family),
            want.own.get(path),
            slack=input_families.slack(family),
            nan_for_inf=family == input_families.NON_FINITE,
        )
        if found.wrong is not None:
            refuse(family + where, found.wrong, evidence, found)
    if missing := set(want.inputs_after) - set(answer.changed):
        text = f"the reference changes input tensor {min(missing)} in place, the candidate does not"
        refuse(family + where, Wrong("input_mutated", text), evidence)


_MAX_COUNT = 10_000  # shape groups that a task may have
_MAX_GROUPS = 8
_KEPT_CALLS = 3  # recent calls whose outputs are compared again after each call; in the end all kept ones are
_KEPT_SHARE = 1 / 16  # of the sandbox's memory that kept outputs may take
_PROBE_TIMEOUT_S = 5.0
_BASELINE_TIMEOUT_S = 60.0  # of a call of a baseline, which may be compiled in it for another shape
_RIGHT_ON_FINITE = "; right on finite inputs (enough only where --domain finite was asked for)"
_WRONG_WITH_GIVEN = "; right with the parameters that the referee draws"
_BOUNDED = '; if its integers have bounds, as lengths have, the task should declare the DOMAIN "bounded"'


def examine(pool: RunnerPool, reference: RunnerHandle, candidate: RunnerHandle, evidence: Evidence) -> None:
    """Run every input family through the reference, the oracle and the candidate, then check outputs and state again.

    Raises:
        Finding: the candidate is wrong, or the task is invalid.
    """
    evidence.tolerances = Tolerances(declared=pool.request.tolerance)
    # On a machine that counts, kernels read the reference's state by its names, whatever tensors the candidate has.
    evidence.names = pool.names if pool.platform.timed in ("wall", "nothing") else state_check.Names()
    examination = Examination(pool, reference, candidate, evidence, pool.names)
    examination.families()
    examination.given_weights()
    examination.settle()


def examine_baseline(pool: RunnerPool, reference: RunnerHandle, baseline: RunnerHandle, until: float) -> int:
    """Check a baseline as a candidate is checked, but for given weights, and on as many families as there is time for.

    The reference is afterwards as it was before, whatever is found.

    Args:
        pool: the runners of the evaluation.
        reference: the reference's runner.
        baseline: the baseline's.
        until: no family but the first begins after this time of `time.perf_counter`.

    Returns:
        The number of families that it was right on.

    Raises:
        Finding: what it computes is not what the task asks for, or the task is invalid.
        BaselineFailed: it failed.
    """
    evidence = Evidence(tolerances=Tolerances(declared=pool.request.tolerance))
    examination = Examination(
        pool,
        reference,
        baseline,
        evidence,
        fails=lambda failure, **_: BaselineFailed(baseline.role, failure),
        timeout_s=_BASELINE_TIMEOUT_S,
        until=until,
    )
    kept_bytes = pool.kept_bytes  # of the candidate's outputs
    try:
        examination.families()
        examination.settle()
    except Exception as error:
        examination.abandon()
        if isinstance(error, RunnerFailed) and error.role == baseline.role:
            raise BaselineFailed(baseline.role, error) from None
        raise
    finally:
        pool.kept_bytes = kept_bytes
    return evidence.families


@dataclass
class Examination:
    """The check of one candidate against its reference, one input family after the other.

    Attributes:
        names: what the candidate calls the reference's tensors.
        fails: what a failure of the candidate's runner is raised as.
        timeout_s: for one of its calls; None: as the request says.
        until: no family but the first begins after this time of `time.perf_counter`.
    """

    pool: RunnerPool
    reference: RunnerHandle
    candidate: RunnerHandle
    evidence: Evidence
    names: state_check.Names = field(default_factory=state_check.Names)
    fails: Callable[..., Exception] = of_candidate
    timeout_s: float | None = None
    until: float = math.inf
    earlier: list[Sequence[tuple[TensorRow, torch.Tensor | bytes]]] = field(default_factory=list)
    roomy: bool = False  # whether the input buffers are larger than the task's own inputs need
    generated: InputSet | None = None  # the first inputs as generated
    following: Sequence[str] = ()  # the families that come next
    begun: input_supply.Begun | None = None  # inputs of one of these, which the reference is making

    def families(self) -> None:
        """Run every family, then look at outputs of earlier calls and at the state.

        Raises:
            Finding: the candidate is wrong, or the task is invalid.
        """
        refused: Finding | None = None
        for number, family in enumerate(input_families.FAMILIES):
            self.following = input_families.FAMILIES[number + 1 :]
            if self._is_late():
                break
            try:
                self.family(family)
            except Finding as finding:
                if family != input_families.NON_FINITE or finding.verdict != "wrong_output":
                    raise
                refused = finding  # what follows tells whether it is wrong on these inputs alone
        for family in _shape_groups(self.pool, self.reference):
            if not self._is_late():
                self.family(family)
        self._drop_begun()
        self.outputs()
        self.state()
        if refused is not None:
            refused.message += _RIGHT_ON_FINITE
            raise refused

    def _is_late(self) -> bool:
        return bool(self.evidence.checks) and time.perf_counter() > self.until

    def family(self, family: str) -> None:
        """Run one family, or record why it is left out.

        Raises:
            Finding: the candidate is wrong, or the task is invalid.
        """
        reason = self._skipped(family)
        if reason:
            self.evidence.skip(family, reason)
            return
        try:
            inputs = self._inputs(family)
        except Finding as finding:
            if not family.startswith(input_families.GROUP) or finding.code != "out_of_memory":
                raise
            self.reference.ask({"op": "release"}, timeout_s=60)
            self.evidence.skip(family, "too large for the sandbox's memory")
            return
        if not inputs.changed:
            self.evidence.skip(family, "nothing to change")
            return
        self._make_room(inputs)
        want, reason = self._ask(family, inputs)
        if want is None or reason:
            self.evidence.skip(family, reason)
            return
        try:
            self._judge(family, inputs, want)
        except Finding as finding:
            if family == input_families.INTEGERS:
                finding.message += _BOUNDED
            raise
        if family.startswith(input_families.GENERATED):
            _allow(want, self.evidence)
            self._look_for_what_is_always_the_same(inputs)
        if family.startswith(input_families.GROUP):
            self.evidence.group_trees.append(inputs.tree)
        del inputs, want
        self.pool.tidy()

    def _inputs(self, family: str) -> InputSet:
        begun, self.begun = self.begun, None
        if begun is not None:
            inputs = begun.finish()
            if begun.family == family:
                return inputs
        if self.pool.frugal:
            self.candidate.empty_buffer()
        return input_supply.make_inputs(self.pool, self.reference, family, alike=self._is_alike(family))

    def _is_alike(self, family: str) -> bool:
        return input_families.may_end_a_process(family, [row.dtype for row in self.evidence.input_rows])

    def _begin_next(self) -> None:
        """Have the reference make the next family's inputs while the referee judges the present one's outputs."""
        family = next((family for family in self.following if not self._skipped(family)), None)
        if family is not None and not self.pool.frugal:
            self.begun = input_supply.begin_inputs(self.pool, self.reference, family, alike=self._is_alike(family))

    def _look_for_what_is_always_the_same(self, inputs: InputSet) -> None:
        if self.generated is None:
            self.generated = inputs
            return
        sets = zip(inputs.tree.tensors, self.generated.contents, inputs.contents, strict=False)
        self.evidence.always_same = any(
            math.prod(row.shape) > 1 and torch.equal(first, second) for row, first, second in sets
        )
        self.generated = None  # there are two such families

    def outputs(self) -> None:
        """Check that the kept outputs of earlier calls are unchanged: a caller of the model may have kept them, too.

        Raises:
            Finding: an output has changed since its call.
        """
        doing = "looking at its outputs again"
        try:
            if self.pool.frugal:
                doing = "calls whose outputs are kept"
                self._keep_outputs()
            self._see_unchanged(self.earlier)
        except RunnerFailed as failure:
            raise self.fails(failure, building=False, doing=doing) from None

    def _keep_outputs(self) -> None:
        """Where memory is short: calls of their own whose outputs are kept, when nothing else is. They are not judged.

        Raises:
            Finding: an output has changed in a later call, or no inputs can be made.
            RunnerFailed: the candidate's runner has failed.
        """
        timeout_s = self.timeout_s or self.pool.request.call_timeout_s
        rng = random.Random(self.pool.seeds.named("kept outputs"))  # noqa: S311 - which shapes
        of_task = (input_families.GENERATED, input_families.GROUP)  # the reference takes any such inputs
        families = [family for family in self.evidence.judged if family.startswith(of_task)]
        for _ in range(_KEPT_CALLS + 1):
            if self._is_late():
                return
            inputs = self._inputs(rng.choice(families))
            self._make_room(inputs)
            call = self.candidate.call(
                inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s, keep=_KEPT_CALLS
            )
            self._see_unchanged(self.earlier)
            rows = call_outputs.tensors_of(call.outputs)
            assert self.evidence.form is not None
            shared = self.evidence.form.shared
            self.earlier.append(
                [(row, call_outputs.digest(self.candidate, row)) for path, row in rows.items() if path not in shared]
            )

    def state(self) -> None:
        """Check that one call leaves the candidate's parameters and buffers as it leaves the reference's.

        Raises:
            Finding: they differ, or the call fails.
        """
        pool, evidence = self.pool, self.evidence
        if pool.state is None or not pool.state[0].tensors:
            return
        inputs = input_supply.make_inputs(pool, self.reference)
        try:
            want = self._state_after_a_call(self.reference, inputs)
        except RunnerFailed as failure:
            raise of_task(failure, doing="a call on fresh parameters") from None
        try:
            have = self._state_after_a_call(self.candidate, inputs)
        except RunnerFailed as failure:
            raise self.fails(failure, building=False, doing="a call on fresh parameters") from None
        before = state_check.values_by_name(*pool.state)
        unknown = state_check.compare(before, want, have, self.names, evidence.tolerances)
        changed = state_check.changed_names(before, want)
        evidence.changing = changed - set(unknown)
        evidence.state = state_check.report(changed, unknown)

    def given_weights(self) -> None:
        """Check the outputs with the weights that were given, if any were; then the drawn ones come back.

        Raises:
            Finding: the candidate is wrong, or the weights are not those of the reference.
        """
        pool, family = self.pool, input_families.GIVEN_WEIGHTS
        if pool.request.weights is None:
            return
        assert pool.state is not None
        inputs = input_supply.make_inputs(pool, self.reference)
        with task_step("loading the given weights"):
            given = given_weights.load(pool, self.reference)
        try:
            self._load(given)
            want, _ = self._ask(family, inputs)
            assert want is not None, "inputs as generated are never left out"
            given_weights.refuse_overflow(want)
            self.following, self.earlier = (), []  # outputs of earlier calls have been let go of
            self._judge(family, inputs, want)
        except Finding as finding:
            if finding.verdict == "wrong_output":
                finding.code = "given_weights"
                finding.message += _WRONG_WITH_GIVEN
            raise
        with task_step("loading its parameters"):
            pool.load_state(self.reference)
        self._load(pool.state)

    def _load(self, state: tuple[Tree, list[torch.Tensor]]) -> None:
        """Give the candidate a state of the reference's, and the platform where it keeps that itself."""
        try:
            self.pool.load_state(self.candidate, state)
        except RunnerFailed as failure:
            raise self.fails(failure, building=False, doing="loading weights") from None
        self.pool.platform.set_state(state_check.values_by_name(*state))

    def _state_after_a_call(self, handle: RunnerHandle, inputs: InputSet) -> dict[str, torch.Tensor]:
        self.pool.load_state(handle)
        handle.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=self.pool.request.call_timeout_s)
        return self.pool.read_state(handle)

    def _see_unchanged(self, calls: Sequence[Sequence[tuple[TensorRow, torch.Tensor | bytes]]]) -> None:
        for rows in calls:
            if any(not call_outputs.unchanged(self.candidate, row, content) for row, content in rows):
                text = "an output of an earlier call changed during a later one"
                raise Finding("wrong_output", text, "buffer_reused")

    def settle(self) -> None:
        """Prepare both runners for timing: drop kept outputs and give back input buffers of the usual size."""
        self.pool.release(self.candidate)
        self._give_usual_buffers(self.reference, self.candidate)

    def abandon(self) -> None:
        """Prepare the reference alone for what comes, because the candidate has failed or is wrong.

        Raises:
            Finding: the task is invalid.
        """
        self._drop_begun()
        with task_step("what follows a check"):
            self.pool.release(self.reference)
            self._give_usual_buffers(self.reference)

    def _give_usual_buffers(self, *handles: RunnerHandle) -> None:
        if self.roomy:
            for handle in handles:
                handle.attach(self.pool.platform.input_buffer(self.pool.input_bytes, self.pool.slots()))

    def _drop_begun(self) -> None:
        begun, self.begun = self.begun, None
        if begun is not None:
            begun.finish()

    def _ask(self, family: str, inputs: InputSet) -> tuple[Expected | None, str]:
        """The expected outputs for these inputs, or the reason why the family is left out."""
        evidence = self.evidence
        if input_families.may_end_a_process(family, [row.dtype for row in inputs.tree.tensors]):
            reason = self._refused_by_a_probe(inputs)
            if reason:
                return None, reason
        try:
            want = ask_reference(self.pool, self.reference, inputs, evidence, first=evidence.form is None)
        except Finding as finding:
            owned = family.startswith((input_families.GENERATED, input_families.GROUP))
            if owned or finding.code is not None or self.reference.has_ended:
                raise
            return None, f"the reference does not take them: {finding.message.rpartition(': ')[2][:120]}"
        return want, says_nothing(family, want, evidence)

    def _refused_by_a_probe(self, inputs: InputSet) -> str:
        """Why the reference does not take these integers; empty if it does.

        A separate runner tries the call: indexes or sizes may be among the integers, and these can end a process.

        Raises:
            Finding: no process can be made for it, or there is no memory for it.
        """
        try:
            probe = self.pool.start_model("probe", self.pool.request.task_source, "Model")
            try:
                probe.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=_PROBE_TIMEOUT_S)
            finally:
                self.pool.stop(probe)
        except RunnerFailed as failure:
            if failure.for_memory or failure.kind == "no_room":  # that says nothing of these integers
                raise of_task(failure, doing="a trial of integers") from None
            return f"the reference does not take them: {failure.message[:120]}"
        return ""

    def _skipped(self, family: str) -> str:
        dtypes = [row.dtype for row in self.evidence.input_rows]
        # Moving numbers far rounds bits away, so that some become equal.
        if family in (input_families.TIES, input_families.FAR) and self.evidence.tolerances.traits.unstable_ties:
            return "which of several equal values comes first is not defined for this op"
        reason = input_families.skipped(family, self.pool.request.domain, dtypes)
        if not reason and family == input_families.NEGATIVE and not self.evidence.may_turn_negative:
            return "the generator gives negative numbers itself, or masks"
        return reason

    def _make_room(self, inputs: InputSet) -> None:
        if not self.evidence.input_rows:
            self.evidence.input_rows = inputs.tree.tensors
            values = [tensor(row, content) for row, content in zip(inputs.tree.tensors, inputs.contents, strict=True)]
            self.evidence.may_turn_negative = any(map(input_families.may_turn_negative, values))
        needed = bytes_needed(inputs.tree)
        if needed > self.pool.input_bytes:
            self.roomy = True
            for handle in (self.reference, self.candidate):
                handle.attach(self.pool.platform.input_buffer(needed, 1))

    def _judge(self, family: str, inputs: InputSet, want: Expected) -> None:
        candidate, timeout_s = self.candidate, self.timeout_s or self.pool.request.call_timeout_s
        try:
            keep = 0 if self.pool.frugal else KEEP_ALL  # see `_keep_outputs`
            call = candidate.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s, keep=keep)
            if not self.pool.frugal:
                self.pool.kept_bytes += sum(row.span_bytes for each in call.each for row in each.outputs.tensors)
            self._begin_next()
            as_generated = family in (input_families.GENERATED, input_families.OTHER_SEED)
            if "kernelbench" in self.pool.request.rules and as_generated:
                self.evidence.kernelbench.append(_kernelbench(candidate, call, want))
            worst: Comparison | None = None
            answers: list[Answer] = []
            for each in call.each:
                wrong = want.form.wrong(candidate, each.outputs)
                if wrong is not None:
                    refuse(family + each.where, wrong, self.evidence)
                answer = call_outputs.read(candidate, each, inputs)
                answers.append(answer)
                try:
                    found = judge(family, answer, want, inputs, self.evidence, where=each.where)
                except Finding as finding:
                    if each.where:  # a device of settings is an emulator, whose users look at memory
                        settings = self._by_setting(family, call, inputs, want)
                        finding.detail = f"{settings}\n{difference.describe(answer.values, want.values)}"
                    raise
                if found is not None and (worst is None or found.severity > worst.severity):
                    worst = found
            if worst is not None:
                self.evidence.add(check(family, True, worst, self.evidence.oracle_note), worst.severity)
            if not self.pool.frugal:
                self._see_unchanged(self.earlier[-_KEPT_CALLS:])
                # An output that lies in the memory of the inputs changes with the inputs, so it is not kept.
                rows = call_outputs.tensors_of(call.outputs)
                own = [(row, answers[0].contents[path]) for path, row in rows.items() if path not in want.form.shared]
                self.earlier.append(own)
                most = max(_KEPT_CALLS, int(self.pool.memory_bytes * _KEPT_SHARE) // max(1, self.evidence.output_bytes))
                del self.earlier[:-most]
        except RunnerFailed as failure:
            raise self.fails(failure, building=False, doing=f"calling the candidate ({family})") from None

    def _by_setting(self, family: str, call: Call, inputs: InputSet, want: Expected) -> str:
        """In which of the device's settings a call is right, and in which wrong: `right at vlen 512, wrong at ...`."""
        found: dict[str, list[str]] = {"right": [], "wrong": []}
        for each in call.each:
            wrong = want.form.wrong(self.candidate, each.outputs)
            try:
                if wrong is None:
                    answer = call_outputs.read(self.candidate, each, inputs)
                    judge(family, answer, want, inputs, replace(self.evidence, checks=[]))
            except Finding as finding:
                wrong = Wrong("values", finding.message)
            found["right" if wrong is None else "wrong"].append(each.where.strip())
        return "; ".join(f"{result} {', '.join(sorted(places))}" for result, places in found.items() if places)


def _shape_groups(pool: RunnerPool, reference: RunnerHandle) -> list[str]:
    """The families of the task's other shapes. Of more than `_MAX_GROUPS`, a sample that cannot be predicted.

    Raises:
        Finding: get_input_groups() fails, or returns no list of input lists.
    """
    if not pool.request.shape_groups:
        return []
    message = {"op": "inputs", "seeds": [1], "families": [input_families.COUNT_GROUPS]}
    try:
        [tree] = reference.reveal_each(message, timeout_s=60)
    except RunnerFailed as failure:
        raise of_task(failure, doing="get_input_groups()") from None
    count = tree.spec.get("scalar")
    if not isinstance(count, int) or not 1 <= count <= _MAX_COUNT:
        raise Finding("task_invalid", "get_input_groups() returns no list of input lists", "shape_groups")
    chosen = _chosen_groups(count, pool.request.shape_group, pool.seeds.named("shape groups"))
    return [f"{input_families.GROUP}{number}" for number in chosen]


def _chosen_groups(count: int, own: int | None, seed: int) -> list[int]:
    """The numbers of all of `count` groups, or of `_MAX_GROUPS` drawn ones, in order.

    If there is a group `own`, it is among them. Each other group is as likely as the next.
    """
    if count <= _MAX_GROUPS:
        return list(range(count))
    kept = [own] if own is not None and 0 <= own < count else []  # where the inputs of get_inputs() are
    rng = random.Random(seed)  # noqa: S311 - which shapes to look at
    others = [number for number in range(count) if number not in kept]
    return sorted(kept + rng.sample(others, _MAX_GROUPS - len(kept)))


def _kernelbench(candidate: RunnerHandle, call: Call, want: Expected) -> bool:
    if accuracy.compare_form(want.form.tree, call.outputs) is not None:
        return False
    have = flatten(call.outputs)
    return all(accuracy.kernelbench(value_of(candidate, have[path]), value) for path, value in want.values.items())


def _allow(want: Expected, evidence: Evidence) -> None:
    """Record by how much a timed call's outputs, and the inputs that it changes, may differ from the reference's."""
    allowed = {
        path: accuracy.allowance(value, want.oracle.get(path), evidence.tolerances_for(path), want.own.get(path))
        for path, value in want.judged().items()
    }
    for path, new in allowed.items():
        old = evidence.allowances.get(path, new)
        evidence.allowances[path] = replace(
            new, max_error=max(new.max_error, old.max_error), rms_error=max(new.rms_error, old.rms_error)
        )
