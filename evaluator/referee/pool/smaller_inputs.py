"""Smaller inputs than the task's, for platforms where a call on the task's own would take too long.

An emulated GPU does some ten million operations a second, and tasks are made for devices that do ten million million.
What is smaller is derived from the sizes alone, by rule, and the reference decides which inputs it takes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ..isolation.calls import InputSet, tensor, with_values
from ..isolation.handle import RunnerHandle
from ..protocol.tensors import Tree
from .reference_work import count_work

_PERIODS = (128, 32)
_PAIR = 2  # of what lies along the first dimension: with one, a kernel that mixes them up would not be found

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Smaller:
    """A rule that makes inputs smaller. A size keeps its remainder, so that tiles end where they ended before.

    Attributes:
        kept: sizes that stay as they are: those that a parameter has.
        period: sizes from twice this on become their remainder plus this; None: they stay as they are.
        leading: the same for the first size of the first tensor and of each that begins with the same.
    """

    kept: frozenset[int]
    period: int | None
    leading: int | None

    def shapes(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The smaller shapes of the tensors of one set of inputs."""
        first = next((shape[0] for shape in shapes if shape), None)

        def size(place: int, old: int) -> int:
            new = old if old in self.kept else _reduced(old, self.period)
            return min(new, _reduced(old, self.leading)) if place == 0 and old == first else new

        return [tuple(size(place, old) for place, old in enumerate(shape)) for shape in shapes]

    def of(self, inputs: InputSet) -> InputSet:
        """The first elements of each tensor along every dimension. Strides keep their order."""
        rows = inputs.tree.tensors
        values = [
            _narrowed(tensor(row, content), shape)
            for row, content, shape in zip(rows, inputs.contents, self.shapes([row.shape for row in rows]), strict=True)
        ]
        return with_values(inputs, values)

    def says(self, tree: Tree) -> list[str]:
        """What it changes in inputs, for people: `128x64 instead of 4096x64`."""
        old = [row.shape for row in tree.tensors]
        pairs = zip(old, self.shapes(old), strict=True)
        return list(dict.fromkeys(f"{_said(new)} instead of {_said(was)}" for was, new in pairs if new != was))


def fit(reference: RunnerHandle, inputs: InputSet, state: dict[str, torch.Tensor], most_work: int) -> Smaller | None:
    """The rule that makes a call on such inputs at most so much work, or as little as the reference takes.

    Args:
        reference: the reference's runner.
        inputs: a set of inputs as generated.
        state: the model's parameters and buffers, whose sizes stay.
        most_work: the most operations that a call may consist of.

    Returns:
        None if the inputs are small enough as they are, or if the reference takes no smaller ones.

    Raises:
        Finding: the reference's process is gone.
    """
    if _work(reference, inputs) <= most_work:
        return None
    best, least = None, math.inf
    for rule in _rules(state):
        if not rule.says(inputs.tree):
            continue
        work = _work(reference, rule.of(inputs))
        if work < least:
            best, least = rule, work
        if work <= most_work:
            break
    return best


def _rules(state: dict[str, torch.Tensor]) -> Iterator[Smaller]:
    kept = frozenset(size for value in state.values() for size in value.shape)
    # Fewer rows first: kernels walk along rows, so shorter ones would leave their loops untried.
    for leading in (*_PERIODS, _PAIR):
        yield Smaller(kept, None, leading)
    for period in _PERIODS:
        yield Smaller(kept, period, None)
        yield Smaller(kept, period, _PAIR)


def _work(reference: RunnerHandle, inputs: InputSet) -> float:
    """Operations of a call, with one for each element of the inputs; infinite if the reference does not take them."""
    counted = count_work(reference, inputs)
    return math.inf if counted is None else counted.flops + sum(math.prod(row.shape) for row in inputs.tree.tensors)


def _reduced(size: int, period: int | None) -> int:
    return size if period is None or size < 2 * period else size % period + period


def _narrowed(value: torch.Tensor, shape: Shape) -> torch.Tensor:
    if tuple(value.shape) == shape:
        return value
    order = sorted(range(value.dim()), key=value.stride, reverse=True)
    for dim, size in enumerate(shape):
        value = value.narrow(dim, 0, size)
    back = sorted(range(value.dim()), key=order.__getitem__)
    return value.permute(order).contiguous().permute(back)


def _said(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "one number"
