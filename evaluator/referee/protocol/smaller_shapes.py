"""The rule by which inputs are made smaller than the task's, where a call on the task's own would take too long.

The referee chooses the rule, and the reference's process makes inputs by it before an input family changes them: what
was changed before might be cut off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

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

    def of(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The first elements along every dimension of the tensors of one set. Strides keep their order."""
        shapes = self.shapes([tuple(value.shape) for value in values])
        return [_narrowed(value, shape) for value, shape in zip(values, shapes, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """The rule in a message."""
        return {"kept": sorted(self.kept), "period": self.period, "leading": self.leading}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "Smaller":
        """The rule of a message of the referee's."""
        return cls(frozenset(told["kept"]), told["period"], told["leading"])


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
