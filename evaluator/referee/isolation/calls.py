"""The input and the result of a runner's call, as values in the referee's own memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from ..errors import RunnerFailed
from ..protocol.tensors import DTYPES, TensorRow, Tree


class Readable(Protocol):
    """A stopped runner whose memory can be read."""

    def read(self, row: TensorRow) -> torch.Tensor:
        """The bytes of a tensor (its whole span)."""
        ...


@dataclass(frozen=True)
class Call:
    """One call of a model.

    Attributes:
        outputs: where the runner claims that its outputs lie.
        seconds: the time of the call.
        placed: where the inputs lay in the input buffer.
        ready_s: seconds spent in setup before the timed call, plus any stop latency beyond that of the timed call.
        threads: the number of threads that the runner had after setup.
        cpu_s: processor time of the runner's first process in the call.
        state: where the model's tensors lie that the request asked for, after the call; None if it asked for none.
        where: what to add to the name of the inputs in a report, if the call was made in one of several settings of the
            device.
        others: the same call in the other settings. All of them must be right.
    """

    outputs: Tree
    seconds: float
    placed: Tree
    ready_s: float
    threads: int
    cpu_s: float
    state: Tree | None = None
    where: str = ""
    others: "tuple[Call, ...]" = ()

    @property
    def each(self) -> "tuple[Call, ...]":
        """The call in each setting of the device."""
        return (self, *self.others)


@dataclass(frozen=True)
class CallRequest:
    """The input of one call, and callbacks around it.

    Attributes:
        tree: the inputs.
        contents: the bytes of each tensor of the inputs.
        seed: the seed of torch's generator in the call.
        timeout_s: the most that the call may take.
        keep: of how many earlier calls the runner keeps the outputs.
        state: the names of the model's tensors whose places are reported with the answer.
        quiet: stops all processes that may run beside the referee. It is called before the runner is continued, be it
            for setup or for the call.
        before: is called when the inputs lie in the input buffer.
        meanwhile: is called once the runner runs.
    """

    tree: Tree
    contents: list[torch.Tensor]
    seed: int
    timeout_s: float
    keep: int = 0
    state: Sequence[str] = ()
    quiet: Callable[[], None] | None = None
    before: Callable[[], None] | None = None
    meanwhile: Callable[[], None] | None = None


@dataclass(frozen=True)
class InputSet:
    """One set of inputs in the referee's own memory: the tree, each tensor's bytes, and the seed of calls on it.

    Candidates are told this seed. It is not the seed that made the inputs. `changed` says whether the input family has
    changed anything in the generator's values.
    """

    tree: Tree
    contents: list[torch.Tensor]
    seed: int
    changed: bool = True

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors together."""
        return sum(content.numel() for content in self.contents)


def tensor(row: TensorRow, content: torch.Tensor) -> torch.Tensor:
    """The tensor of a row, made of the bytes of its span."""
    dtype = DTYPES[row.dtype]
    if content.numel() == 0:
        return torch.empty(row.shape, dtype=dtype)
    return content.view(dtype).as_strided(row.shape, row.stride)


def with_values(inputs: InputSet, values: Sequence[torch.Tensor]) -> InputSet:
    """The same nesting and scalars with other tensors; each keeps its strides, 0 among them."""
    rows, contents = [], []
    for value in values:
        name = str(value.dtype).removeprefix("torch.")
        row = TensorRow(0, name, tuple(value.shape), tuple(value.stride()))
        content = torch.zeros(row.span_bytes, dtype=torch.uint8)
        if content.numel():
            # Along a stride of 0 all slices are one: a copy to each would write to a place again and again.
            for dim, (size, stride) in enumerate(zip(row.shape, row.stride, strict=True)):
                value = value.narrow(dim, 0, 1) if size > 1 and stride == 0 else value
            content.view(DTYPES[name]).as_strided(value.shape, row.stride).copy_(value)
        rows.append(row)
        contents.append(content)
    return replace(inputs, tree=Tree(inputs.tree.spec, tuple(rows)), contents=contents)


def copy_value(handle: Readable, tree: Tree, limit_bytes: int) -> tuple[Tree, list[torch.Tensor]]:
    """Read every tensor of a tree out of a stopped runner.

    Raises:
        RunnerFailed: a tensor cannot be read, or all together exceed `limit_bytes`.
    """
    total = sum(row.span_bytes for row in tree.tensors)
    if total > limit_bytes:
        raise RunnerFailed("out_of_memory", f"{total:,} bytes of tensors, more than the {limit_bytes:,} allowed")
    return tree, [handle.read(row) for row in tree.tensors]
