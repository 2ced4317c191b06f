"""Speedups as bars: the positions of value and interval on a logarithmic axis that all rows of a table share."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from service.views.evaluation import Ratio

WIDTH = 96
_MIN, _MAX = 1 / 64, 4096.0  # values beyond are drawn at the edge


@dataclass(frozen=True)
class Axis:
    """The ends of the axis, as logarithms to base 2."""

    low: float
    high: float

    def x(self, value: float) -> float:
        """The position of a ratio, from 0 to `WIDTH`."""
        if not value > 0:
            return 0.0
        position = (math.log2(min(max(value, _MIN), _MAX)) - self.low) / (self.high - self.low)
        return round(min(max(position, 0.0), 1.0) * WIDTH, 1)


@dataclass(frozen=True)
class Bar:
    """The positions of 1 (as fast as the baseline), of the value, and of the ends of the interval."""

    one: float
    value: float
    low: float
    high: float


def axis(ratios: Iterable[Ratio | None]) -> Axis:
    """An axis that shows all these ratios and 1, with a margin."""
    values = [1.0]
    for ratio in ratios:
        if ratio is not None:
            values += [each for each in (ratio.value, ratio.low, ratio.high) if each is not None and each > 0]
    inside = [math.log2(min(max(value, _MIN), _MAX)) for value in values]
    return Axis(min(min(inside), -0.5) - 0.2, max(max(inside), 1.0) + 0.2)


def bar(axis: Axis, ratio: Ratio) -> Bar:
    """The bar of one ratio."""
    low = ratio.value if ratio.low is None else ratio.low
    high = ratio.value if ratio.high is None else ratio.high
    return Bar(axis.x(1.0), axis.x(ratio.value), axis.x(low), axis.x(high))
