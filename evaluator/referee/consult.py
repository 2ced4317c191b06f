"""Asking the reference and its float64 oracle what is right, and whether they are fit to be asked."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from . import accuracy, oracle
from .accuracy import Allowance, flatten
from .bench import Bench
from .errors import Own, own_error
from .evidence import Evidence
from .handle import Call, Handle, InputSet, RunnerFailed, tensor
from .tolerances import Traits
from .tree import TensorRow, Tree
from .verdicts import Finding, of_task


@dataclass(frozen=True)
class Expected:
    """The reference's outputs on one set of inputs, with the oracle's."""

    tree: Tree
    values: dict[str, torch.Tensor]
    oracle: dict[str, torch.Tensor]
    inputs_after: dict[int, torch.Tensor]
    own: dict[str, Own]  # the reference's own errors


def consult(bench: Bench, reference: Handle, inputs: InputSet, evidence: Evidence, *, first: bool) -> Expected:
    """What the reference and the oracle say; `first` also runs the reference twice, to see that it agrees with itself.

    Raises:
        Finding: the reference fails or disagrees with itself.
    """
    timeout_s = max(60.0, bench.request.call_timeout_s)
    try:
        call = reference.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s)
        values = {path: value_of(reference, row) for path, row in flatten(call.outputs).items()}
        after = mutations(reference, call, inputs)
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
            if accuracy.is_rounded(value) and own_error(value, wide[path]).distance > oracle_limit(value, evidence)
        }
        if evidence.no_oracle:
            names = ", ".join(f"output{path}" for path in sorted(evidence.no_oracle))
            evidence.oracle_note = (
                f"the float64 run gives another result for {names[:200]}; compared with the reference itself"
            )
    return {path: value for path, value in wide.items() if path not in evidence.no_oracle}


def oracle_limit(value: torch.Tensor, evidence: Evidence) -> float:
    """How far the float64 run of an output may lie from the reference and still be its oracle."""
    return evidence.tolerances.oracle_limit(str(value.dtype).removeprefix("torch."))


def mutations(handle: Handle, call: Call, inputs: InputSet) -> dict[int, torch.Tensor]:
    """The inputs that a call has changed, by number, as they are now."""
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


def value_of(handle: Handle, leaf: Any) -> torch.Tensor:
    """A leaf of a runner's outputs as a tensor: read out of its memory, or made of the scalar that it sent."""
    if isinstance(leaf, TensorRow):
        return tensor(leaf, handle.read(leaf))
    number = leaf if isinstance(leaf, bool | int | float) else hash(str(leaf)) % 2**31
    return torch.tensor([number], dtype=torch.float64 if isinstance(leaf, float) else torch.int64)
