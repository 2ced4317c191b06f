"""The expected outputs, from the reference and its float64 oracle, and whether these two can be relied on."""

import random
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..errors import Finding, RunnerFailed, of_task
from ..isolation.calls import Call, InputSet, tensor
from ..isolation.handle import RunnerHandle
from ..pool.runner_pool import RunnerPool
from ..protocol import input_families
from ..protocol.call_messages import KEEP_ALL
from ..protocol.framing import Message
from ..protocol.tensors import TensorRow, Tree, bytes_needed
from ..protocol.traits import Traits
from . import accuracy, call_outputs
from .accuracy import Allowance, flatten
from .call_outputs import Form, input_path, value_of
from .error_norms import Own, own_error
from .findings import Evidence
from .layout import overlap


@dataclass(frozen=True)
class Expected:
    """The reference's and the oracle's outputs on one set of inputs."""

    form: Form
    values: dict[str, torch.Tensor]
    inputs_after: dict[int, torch.Tensor]  # the inputs that the reference changes, after the call, by number
    oracle: dict[str, torch.Tensor]  # float64 outputs by path, and changed inputs by `input_path`
    own: dict[str, Own]  # the reference's own errors, by the same paths

    def judged(self) -> dict[str, torch.Tensor]:
        """The values that a candidate is compared with, by path: outputs, and inputs that the reference changes."""
        return self.values | {input_path(index): value for index, value in self.inputs_after.items()}


def ask_reference(
    pool: RunnerPool, reference: RunnerHandle, inputs: InputSet, evidence: Evidence, *, first: bool
) -> Expected:
    """Run the reference and the oracle on a set of inputs.

    Args:
        pool: the runner pool.
        reference: the reference's runner.
        inputs: the inputs of the call.
        evidence: with `first`, receives facts about the reference's outputs.
        first: whether to run the reference twice, to check that it agrees with itself, and to record these facts.

    Raises:
        Finding: the reference fails or disagrees with itself.
    """
    timeout_s = max(60.0, pool.request.call_timeout_s)
    try:
        call = reference.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s)
        answer = call_outputs.read(reference, call, inputs)
        values = answer.values
        after = {index: tensor(inputs.tree.tensors[index], content) for index, content in answer.changed.items()}
        form = call_outputs.form_of(reference, call.outputs)
        if first:
            evidence.form = form
            evidence.output_bytes = pool.output_bytes = sum(row.span_bytes for row in call.outputs.tensors)
            evidence.mutated = set(after)
            evidence.numbers = {path for path, leaf in flatten(call.outputs).items() if isinstance(leaf, float)}
            again = reference.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s)
            _agrees_with_itself(again, reference, values)
            evidence.overwrites = _forgets_its_outputs(pool, reference, inputs, values, form.shared)
    except RunnerFailed as failure:
        raise of_task(failure, doing="its forward pass") from None
    judged = values | {input_path(index): value for index, value in after.items()}
    if first:
        evidence.has_nan = _has_nan(judged)
        if evidence.has_nan and pool.request.source_kernel:
            # Memory of the emulation's holds NaN until something is written.
            text = "the source kernel gives NaN on the task's own inputs, as it does if it leaves memory unwritten"
            raise Finding("task_invalid", text, "unwritten")
    wide = _ask_oracle(
        pool,
        reference,
        inputs,
        judged,
        sorted(after),
        evidence,
        timeout_s=4 * timeout_s,
        first=first,
        kernel=bool(pool.request.source_kernel),
    )
    pool.release(reference)
    for path in wide.keys() - values.keys():
        # What the op writes into an input may be meaningless for changed inputs. That does not make its outputs wrong.
        if own_error(judged[path], wide[path]).distance > oracle_limit(path, judged[path], evidence):
            del wide[path]
    own = {path: own_error(value, wide.get(path)) for path, value in judged.items() if accuracy.is_rounded(value)}
    return Expected(form, values, after, wide, own)


def _has_nan(values: dict[str, torch.Tensor]) -> bool:
    """Whether any value holds NaN."""
    return any(bool(torch.isnan(value).any()) for value in values.values() if accuracy.is_rounded(value))


def _ask_oracle(
    pool: RunnerPool,
    reference: RunnerHandle,
    inputs: InputSet,
    judged: dict[str, torch.Tensor],
    changed: list[int],
    evidence: Evidence,
    *,
    timeout_s: float,
    first: bool,
    kernel: bool,
) -> dict[str, torch.Tensor]:
    """The float64 outputs and changed inputs by path, without those that cannot serve as an oracle.

    With `first` the op's traits are recorded in the evidence, too. `kernel`: the reference is a source kernel, whose
    runs on inputs nearly the same stand for the oracle.
    """
    try:
        assert reference.input_buffer is not None
        pool.release(reference)  # its outputs have been read
        placed = reference.input_buffer.put(inputs.tree, inputs.contents)
        message = {
            "op": "oracle",
            "tree": placed.to_json(),
            "seed": inputs.seed,
            "inputs_after": bool(changed),
            "give_back": pool.frugal,
        }
        reply = reference.ask(message, timeout_s=timeout_s)
        tree = reference.tree_of(reply.get("tree"))
        alone = _held_alone(tree, reply)
        outputs, traits, given = _parts_of_oracle(flatten(tree))
        wide = {
            path: call_outputs.moved_value(reference, leaf)
            if isinstance(leaf, TensorRow) and leaf.place in alone
            else value_of(reference, leaf)
            for path, leaf in outputs.items()
        }
        tensors = [leaf for leaf in given if isinstance(leaf, TensorRow)]
        for index in changed:
            path = input_path(index)
            if (
                index < len(tensors)
                and tensors[index].shape == judged[path].shape
                and accuracy.is_rounded(judged[path])
            ):
                wide[path] = value_of(reference, tensors[index])
    except RunnerFailed as failure:
        if failure.kind not in ("error", "output", "out_of_memory"):
            raise of_task(failure, doing="its float64 run") from None
        evidence.oracle_note = f"no float64 oracle ({failure.message[:160]}); compared with the reference itself"
        return {}
    if first:
        evidence.tolerances = replace(evidence.tolerances, traits=Traits.from_json(traits))
    outputs_alone = {path: value for path, value in judged.items() if path not in map(input_path, changed)}
    if any(path not in wide or wide[path].shape != value.shape for path, value in outputs_alone.items()):
        evidence.oracle_note = "the float64 run returns other shapes; compared with the reference itself"
        return {}
    rerun = "run on inputs nearly the same" if kernel else "float64 run"
    if kernel:
        evidence.oracle_note = "compared with the source kernel, run in an emulation"
    if first:
        evidence.no_oracle = {
            path
            for path, value in judged.items()
            if accuracy.is_rounded(value)
            and path in wide
            and (
                own_error(value, wide[path]).distance > oracle_limit(path, value, evidence)
                or _says_little(wide[path], value)
            )
        }
        if evidence.no_oracle:
            names = ", ".join(map(accuracy.naming, sorted(evidence.no_oracle)))
            evidence.oracle_note = (
                f"the {rerun} gives another result for {names[:200]}; compared with the reference itself"
            )
    return {path: value for path, value in wide.items() if path not in evidence.no_oracle}


def _says_little(wide: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether the float64 output is not finite at most places where the reference is: nothing would be judged there."""
    finite = torch.isfinite(value)
    return int((finite & ~torch.isfinite(wide)).sum()) > int(finite.sum()) // 2


def _held_alone(tree: Tree, reply: Message) -> set[int]:
    """The places of tensors that only the oracle's answer refers to. The runner tells them where memory is short."""
    told = reply.get("alone")
    numbers = [each for each in told if type(each) is int] if isinstance(told, list) else []
    return {tree.tensors[each].place for each in numbers if 0 <= each < len(tree.tensors)}


def oracle_limit(path: str, value: torch.Tensor, evidence: Evidence) -> float:
    """How far the float64 output may lie from the reference's and still be its oracle (a share of the output)."""
    return evidence.tolerances_for(path).oracle_limit(str(value.dtype).removeprefix("torch."))


def _agrees_with_itself(again: Call, reference: RunnerHandle, values: dict[str, torch.Tensor]) -> None:
    for path, leaf in flatten(again.outputs).items():
        value = value_of(reference, leaf)
        first = values.get(path)
        if first is None or first.shape != value.shape:
            raise Finding("task_invalid", "two calls on the same inputs return other shapes", "nondeterministic")
        # Threads may add in another order. No candidate can match a reference that varies by more than rounding.
        if not accuracy.within(value, first, _rounding(first)):
            raise Finding(
                "task_invalid",
                f"output{path} differs between two calls on the same inputs and seed (what depends on earlier "
                "calls, too, cannot be judged)",
                "nondeterministic",
            )


def _forgets_its_outputs(
    pool: RunnerPool, reference: RunnerHandle, inputs: InputSet, values: dict[str, torch.Tensor], shared: frozenset[str]
) -> bool:
    """Whether the reference gives the same outputs after its last ones were overwritten: it keeps none of them."""
    timeout_s = max(60.0, pool.request.call_timeout_s)
    state = sorted(pool.initial)
    call = reference.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s, state=state)
    if call.state is not None and overlap(call.outputs.tensors, call.state.tensors):
        return False
    overwritten = []
    try:
        overwritten = call_outputs.overwrite(reference, call.outputs, shared, random.Random())  # noqa: S311 - any will do
        again = reference.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s, keep=KEEP_ALL)
        _agrees_with_itself(again, reference, values)
        return True
    except Finding:
        return False
    except RunnerFailed as failure:
        if failure.kind not in ("error", "unreadable"):
            raise
        return False
    finally:
        for row, elements in overwritten:  # the runner still keeps these outputs, so nothing else lies there
            reference.flip(row, elements)


def _rounding(value: torch.Tensor) -> Allowance:
    return accuracy.allowance(value, None)


def says_nothing(family: str, want: Expected, evidence: Evidence) -> str:
    """Why the reference's outputs for these inputs cannot be used to judge a candidate; empty if they can."""
    if family == input_families.NON_FINITE or family.startswith(input_families.GENERATED):
        return ""
    rounded = [(path, value) for path, value in want.values.items() if accuracy.is_rounded(value)]
    if any(want.own[path].finite < 0.5 and value.numel() > 0 for path, value in rounded):
        return "the reference itself overflows here"
    if family in input_families.NAN_REFUSES and not evidence.has_nan and _has_nan(want.judged()):
        return "the reference gives NaN for them"
    for path, value in rounded:
        own = want.own[path]
        if own.distance > oracle_limit(path, value, evidence):
            return f"the reference itself is off by {own.distance:.1%} here"
    return ""


def takes_as_generated(pool: RunnerPool, reference: RunnerHandle, inputs: InputSet, evidence: Evidence) -> bool:
    """Whether the reference takes changed inputs as it takes those as generated, so that a timed call may be on them.

    It does so if it raises no error, returns outputs of the same form, changes the same inputs and gives no NaN that it
    does not give on the task's own inputs.

    Raises:
        Finding: the reference's process is gone.
    """
    assert evidence.form is not None
    if bytes_needed(inputs.tree) > pool.input_bytes:
        return False
    timeout_s = max(60.0, pool.request.call_timeout_s)
    try:
        call = reference.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s)
        if evidence.form.wrong(reference, call.outputs) is not None:
            return False
        answer = call_outputs.read(reference, call, inputs)
        pool.release(reference)
    except RunnerFailed as failure:
        if failure.kind != "error":
            raise of_task(failure, doing="its forward pass") from None
        return False
    after = {input_path(index): tensor(inputs.tree.tensors[index], found) for index, found in answer.changed.items()}
    return set(answer.changed) <= evidence.mutated and (evidence.has_nan or not _has_nan(answer.values | after))


def _parts_of_oracle(answer: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """The leaves of an oracle's answer: outputs by their own paths, traits by name, inputs in order."""
    outputs, traits, inputs = "['outputs']", "['traits']", "['inputs']"
    return (
        {path.removeprefix(outputs): leaf for path, leaf in answer.items() if path.startswith(outputs)},
        {path[len(traits) + 2 : -2]: leaf for path, leaf in answer.items() if path.startswith(traits)},
        [leaf for path, leaf in answer.items() if path.startswith(inputs)],
    )
