"""Speedups as small pictures: where value and interval lie on a logarithmic axis that all lines of a table share."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from service.views.evaluation import Ratio

WIDTH = 96
_LEAST, _MOST = 1 / 64, 4096.0  # what lies beyond is drawn at the edge


@dataclass(frozen=True)
class Axis:
    """The ends of the axis as logarithms to base 2."""

    low: float
    high: float

    def x(self, value: float) -> float:
        """Where a ratio lies, from 0 to WIDTH."""
        if not value > 0:
            return 0.0
        place = (math.log2(min(max(value, _LEAST), _MOST)) - self.low) / (self.high - self.low)
        return round(min(max(place, 0.0), 1.0) * WIDTH, 1)


@dataclass(frozen=True)
class Bar:
    """Places in the picture: of 1 (as fast as the baseline), of the value, and of the interval's ends."""

    one: float
    value: float
    low: float
    high: float


def axis(ratios: Iterable[Ratio | None]) -> Axis:
    """An axis from a bit below to a bit above all of these, 1 always among them."""
    values = [1.0]
    for ratio in ratios:
        if ratio is not None:
            values += [each for each in (ratio.value, ratio.low, ratio.high) if each is not None and each > 0]
    inside = [math.log2(min(max(value, _LEAST), _MOST)) for value in values]
    return Axis(min(min(inside), -0.5) - 0.2, max(max(inside), 1.0) + 0.2)


def bar(on: Axis, ratio: Ratio) -> Bar:
    """One line's picture."""
    low = ratio.value if ratio.low is None else ratio.low
    high = ratio.value if ratio.high is None else ratio.high
    return Bar(on.x(1.0), on.x(ratio.value), on.x(low), on.x(high))
