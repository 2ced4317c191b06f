"""The check of a model's state: the reference's parameters are found in a candidate and compared after calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import Finding
from ..isolation.calls import tensor
from ..isolation.handle import RunnerHandle
from ..isolation.procfs import same_bytes
from ..protocol.tensors import TensorRow, Tree
from . import accuracy
from .tolerances import Tolerances

_TIMED_SLACK = 16.0  # rounding errors of many calls add up in a running average
_MAX_LISTED = 20

State = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Names:
    """The candidate's names for the reference's parameters and buffers.

    `own` maps the reference's name to the candidate's. `missing` holds the reference's names for which the candidate
    has no tensor.
    """

    own: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()  # the reference's names for which several tensors of the candidate held its numbers


def rows_by_name(tree: Tree) -> dict[str, TensorRow]:
    """The tensor rows of a runner's state by name."""
    body = tree.spec.get("dict", []) if isinstance(tree.spec, dict) else []
    return {str(key): tree.tensors[item["tensor"]] for key, item in body if "tensor" in item}


def values_by_name(tree: Tree, contents: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of a runner's state by name. `contents` holds the bytes of each tensor of the tree."""
    where = {id(row): index for index, row in enumerate(tree.tensors)}
    return {name: tensor(row, contents[where[id(row)]]) for name, row in rows_by_name(tree).items()}


def match(handle: RunnerHandle, own: Tree, initial: State) -> Names:
    """Find each tensor of the reference's fresh state in a fresh candidate: by name and shape, or else by content.

    Both were built under the same seed, so weights under another name still hold the same numbers. Of several tensors
    that hold the same numbers the first is taken.

    Args:
        handle: the candidate's runner.
        own: the candidate's state.
        initial: the reference's state as its constructor leaves it.

    Raises:
        RunnerFailed: the runner's memory cannot be read.
    """
    rows = rows_by_name(own)
    guessed: list[str] = []
    found = {name: name for name, value in initial.items() if name in rows and rows[name].shape == tuple(value.shape)}
    free = {name: row for name, row in rows.items() if name not in found}
    for name, value in initial.items():
        if name in found:
            continue
        dtype = str(value.dtype).removeprefix("torch.")
        alike = [
            other
            for other, row in free.items()
            if row.shape == tuple(value.shape) and row.dtype == dtype and same(tensor(row, handle.read(row)), value)
        ]
        if alike:
            found[name] = alike[0]
            del free[alike[0]]
            guessed += [name] * (len(alike) > 1)
    return Names(found, tuple(name for name in initial if name not in found), tuple(guessed))


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors have the same dtype, shape and bits."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return same_bytes(_bytes(left), _bytes(right))


def changed_names(before: State, after: State) -> frozenset[str]:
    """The names of the tensors that a call has changed."""
    return frozenset(name for name, value in before.items() if name in after and not same(after[name], value))


def compare(before: State, want: State, have: State, names: Names, tolerances: Tolerances) -> list[str]:
    """Compare the candidate's state after a call with the reference's.

    Args:
        before: the state that both were given before the call.
        want: the reference's state after the call.
        have: the candidate's state after the call, by the candidate's names.
        names: the candidate's names.
        tolerances: the floors of the task.

    Returns:
        The names for which the candidate has no comparable tensor.

    Raises:
        Finding: the state differs.
    """
    changed, unknown = changed_names(before, want), []
    for name, loaded in before.items():
        value = have.get(names.own[name]) if name in names.own else None
        if value is None or value.dtype != loaded.dtype or value.shape != loaded.shape:
            # A missing counter is accepted: batch norm with a fixed momentum does not need the count of batches.
            counter = loaded.numel() == 1 and not loaded.is_floating_point()
            if name in changed and not counter:
                message = f"the reference's call changes {name}, which the candidate lacks"
                raise Finding("wrong_output", message, "state")
            unknown.append(name)
        elif name not in changed:
            if not same(value, loaded):
                raise Finding(
                    "wrong_output", f"{name} was changed by a call, which the reference leaves alone", "state"
                )
        else:
            _alike(name, value, want[name], tolerances, "a call", 1.0)
    return unknown


def compare_after_timing(
    want: State, have: State, names: Names, compared: frozenset[str], tolerances: Tolerances
) -> None:
    """Compare the state that calls change (`compared`, the reference's names) after the timed calls.

    Raises:
        Finding: the state differs.
    """
    for name in sorted(compared):
        value = have.get(names.own[name]) if name in names.own else None
        if value is None or value.shape != want[name].shape or value.dtype != want[name].dtype:
            raise Finding("wrong_output", f"{name} is gone after the timed calls", "state")
        _alike(name, value, want[name], tolerances, "the timed calls", _TIMED_SLACK)


def report(changed: frozenset[str], unknown: list[str]) -> dict[str, Any]:
    """The report on the model's state in an evaluation's JSON."""
    return {"changed_by_calls": sorted(changed)[:_MAX_LISTED], "not_compared": unknown[:_MAX_LISTED]}


def _alike(
    name: str, value: torch.Tensor, want: torch.Tensor, tolerances: Tolerances, after: str, slack: float
) -> None:
    found = accuracy.compare(f" {name} after {after}", value, want, None, tolerances, slack=slack)
    if found.wrong is not None:
        raise Finding("wrong_output", found.wrong.message, "state")


def _bytes(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous().view(-1).view(torch.uint8) if value.numel() else torch.empty(0, dtype=torch.uint8)
