"""What a call has answered, read out of its stopped runner: form and place of the outputs, values, changed inputs."""

from dataclasses import dataclass

import torch

from . import accuracy
from .accuracy import Wrong, flatten
from .calls import Call, InputSet, tensor
from .failures import RunnerFailed
from .handle import Handle
from .placement import in_inbox
from .tree import TensorRow, Tree


@dataclass(frozen=True)
class Answer:
    """The outputs of one call by path, and the bytes of the inputs that it has changed, by number."""

    tree: Tree
    values: dict[str, torch.Tensor]
    changed: dict[int, torch.Tensor]


def read(handle: Handle, call: Call, inputs: InputSet) -> Answer:
    """Read everything that a call has left behind.

    Raises:
        RunnerFailed: its memory cannot be read.
    """
    values = {path: value_of(handle, leaf) for path, leaf in flatten(call.outputs).items()}
    return Answer(call.outputs, values, mutations(handle, call, inputs))


def wrong_form(expected: Tree, shared: frozenset[str], handle: Handle, outputs: Tree) -> Wrong | None:
    """What is wrong with outputs before their values are looked at. `shared`: those that may lie in the inbox.

    Raises:
        RunnerFailed: the runner is gone.
    """
    wrong = accuracy.compare_form(expected, outputs)
    if wrong is not None:
        return wrong
    for path in sorted(shared_outputs(handle, outputs) - shared):
        text = f"output{path} lies in the memory of the inputs; the reference returns memory of its own"
        return Wrong("layout", text)
    return None


def shared_outputs(handle: Handle, outputs: Tree) -> frozenset[str]:
    """The outputs that lie in the memory of the inputs.

    Raises:
        RunnerFailed: the runner is gone.
    """
    rows = {path: leaf for path, leaf in flatten(outputs).items() if isinstance(leaf, TensorRow)}
    try:
        inside = in_inbox(handle.pid, list(rows.values()))
    except OSError:
        raise RunnerFailed("died", "the process is gone before its outputs could be read") from None
    return frozenset(path for path, shared in zip(rows, inside, strict=True) if shared)


def mutations(handle: Handle, call: Call, inputs: InputSet) -> dict[int, torch.Tensor]:
    """The inputs that a call has changed, by number, as they are now."""
    assert handle.inbox is not None
    return {
        index: handle.inbox.copy(row)
        for index, (row, content) in enumerate(zip(call.placed.tensors, inputs.contents, strict=True))
        if not handle.inbox.unchanged(row, content)
    }


def value_of(handle: Handle, leaf: object) -> torch.Tensor:
    """A leaf of a runner's outputs as a tensor: read out of its memory, or made of the scalar that it sent.

    Raises:
        RunnerFailed: its memory cannot be read.
    """
    if isinstance(leaf, TensorRow):
        return tensor(leaf, handle.read(leaf))
    number = leaf if isinstance(leaf, bool | int | float) else hash(str(leaf)) % 2**31
    return torch.tensor([number], dtype=torch.float64 if isinstance(leaf, float) else torch.int64)


def input_path(index: int) -> str:
    """The path under which an input that is changed in place is compared."""
    return f" input tensor {index}"
