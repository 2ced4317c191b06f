"""Smaller inputs than the task's, for platforms where a call on the task's own would take too long.

An emulated GPU does some ten million operations a second, and tasks are made for devices that do ten million million.
What is smaller is derived from the sizes alone, by rule, and the reference decides which inputs it takes.
"""

import math
from collections.abc import Iterator

import torch

from ..isolation.calls import InputSet, tensor, with_values
from ..isolation.handle import RunnerHandle
from ..protocol.smaller_shapes import Smaller
from ..protocol.tensors import Tree
from .reference_work import count_work

_PERIODS = (128, 32)
_PAIR = 2  # of what lies along the first dimension: with one, a kernel that mixes them up would not be found
_MOST_OF_A_BATCH = 2 * min(_PERIODS) - 1  # first sizes from the next one on are taken for rows, which tiles may divide


def made_smaller(rule: Smaller, inputs: InputSet) -> InputSet:
    """The inputs as the rule makes them."""
    rows = inputs.tree.tensors
    return with_values(
        inputs, rule.of([tensor(row, content) for row, content in zip(rows, inputs.contents, strict=True)])
    )


def says(rule: Smaller, tree: Tree) -> list[str]:
    """What the rule changes in inputs, for people: `128x64 instead of 4096x64`."""
    old = [row.shape for row in tree.tensors]
    pairs = zip(old, rule.shapes(old), strict=True)
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
    for rule in rules(state, inputs.tree):
        if not says(rule, inputs.tree):
            continue
        work = _work(reference, made_smaller(rule, inputs))
        if work < least:
            best, least = rule, work
        if work <= most_work:
            break
    return best


def rules(state: dict[str, torch.Tensor], tree: Tree) -> Iterator[Smaller]:
    """The rules that are tried, the one that leaves most untouched first.

    Args:
        state: the model's parameters and buffers, whose sizes stay.
        tree: the inputs.
    """
    kept = frozenset(size for value in state.values() for size in value.shape)
    first = next((row.shape[0] for row in tree.tensors if row.shape), 0)
    of_rows = first > _MOST_OF_A_BATCH
    # Fewer rows first: kernels walk along rows, so shorter ones would leave their loops untried.
    for leading in _PERIODS:
        yield Smaller(kept, None, leading)
    # Two of a batch are as good as all. Two rows are a tile of their own, and a kernel that is wrong in every other
    # tile would not be found: so all sizes become smaller before that.
    if not of_rows:
        yield Smaller(kept, None, _PAIR)
    for period in _PERIODS:
        yield Smaller(kept, period, None)
        if not of_rows:
            yield Smaller(kept, period, _PAIR)
    if of_rows:
        yield from (Smaller(kept, period, _PAIR) for period in (None, *_PERIODS))


def _work(reference: RunnerHandle, inputs: InputSet) -> float:
    """Operations of a call, with one for each element of the inputs; infinite if the reference does not take them."""
    counted = count_work(reference, inputs)
    return math.inf if counted is None else counted.flops + sum(math.prod(row.shape) for row in inputs.tree.tensors)


def _said(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "one number"
