"""What goes into a runner's call and what comes out of it, as values in the referee's own memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from ..errors import RunnerFailed
from ..protocol.tensors import DTYPES, TensorRow, Tree


class Readable(Protocol):
    """A stopped runner."""

    def read(self, row: TensorRow) -> torch.Tensor:
        """The bytes of a tensor (its whole span)."""
        ...


@dataclass(frozen=True)
class Call:
    """One call of a model: where the outputs are said to lie, how long it took, where its inputs lay.

    `ready_s`: how long the runner took before it was ready for the inputs, and longer than in the call until it had
    stopped; `threads`: how many it had then; `cpu_s`: processor time of its first process in the call. `state`: where
    what was asked for of the model's state lies after it.
    """

    outputs: Tree
    seconds: float
    placed: Tree
    ready_s: float
    threads: int
    cpu_s: float
    state: Tree | None = None


@dataclass(frozen=True)
class CallRequest:
    """What one call is given, and what happens around it.

    `keep`: the runner keeps the outputs of earlier calls. `state`: the names of the model's tensors that are reported
    with the answer. `quiet` stops what may run beside the referee, before the runner is let go for whatever reason.
    `before` is called when the inputs lie in place, `meanwhile` once the runner runs.
    """

    tree: Tree
    contents: list[torch.Tensor]
    seed: int
    timeout_s: float
    keep: bool = False
    state: Sequence[str] = ()
    quiet: Callable[[], None] | None = None
    before: Callable[[], None] | None = None
    meanwhile: Callable[[], None] | None = None


@dataclass(frozen=True)
class InputSet:
    """One set of inputs in the referee's own memory: the tree, each tensor's bytes, and the seed of calls on it.

    That seed is told to candidates; it is not the one that made the inputs. `changed`: whether the family that they are
    of has changed anything about what the generator gave.
    """

    tree: Tree
    contents: list[torch.Tensor]
    seed: int
    changed: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(content.numel() for content in self.contents)


def tensor(row: TensorRow, content: torch.Tensor) -> torch.Tensor:
    """The tensor of a row out of its span's bytes."""
    dtype = DTYPES[row.dtype]
    if content.numel() == 0:
        return torch.empty(row.shape, dtype=dtype)
    return content.view(dtype).as_strided(row.shape, row.stride)


def copy_value(handle: Readable, tree: Tree, limit_bytes: int) -> tuple[Tree, list[torch.Tensor]]:
    """Read every tensor of a tree out of a stopped runner.

    Raises:
        RunnerFailed: unreadable, or more than `limit_bytes` in all.
    """
    total = sum(row.span_bytes for row in tree.tensors)
    if total > limit_bytes:
        raise RunnerFailed("out_of_memory", f"{total:,} bytes of tensors, more than the {limit_bytes:,} allowed")
    return tree, [handle.read(row) for row in tree.tensors]
