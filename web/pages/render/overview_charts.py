"""Pictures of the overview, drawn by the server: their figures stand in text beside them, and no script is needed.

A picture is `WIDTH` wide in units of its own and as wide as its column on the page, which are about the same.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.views.evaluation import Ratio
from service.views.overview import Bin, ModelLine, Progress, Spread
from web.pages.render import speedup_bars

WIDTH, HEIGHT = 380, 220
LEFT, RIGHT, TOP, BOTTOM = 40, 10, 10, 36

_RATIOS = (0.125, 0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.35, 1.5, 1.75, 2, 2.5, 3, 4, 6, 8, 12, 16, 32, 64, 256, 1024)
_MOST_TICKS = 7
_APART = 17.0  # between the middles of numbers
_RINGS = 6
_LEAST_DOLLARS = 1e-6  # less is drawn as this


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: its place, and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class Column:
    """A column of the distribution with its left edge, top, width and height; `slow` below 1."""

    x: float
    y: float
    width: float
    height: float
    tasks: int
    label: str
    slow: bool


@dataclass(frozen=True)
class Distribution:
    """The distribution as columns; `ticks` are the edges between them, `one` is where the speedup is 1, if inside."""

    columns: tuple[Column, ...]
    ticks: tuple[Tick, ...]
    one: float | None


@dataclass(frozen=True)
class Dot:
    """A model in the picture of costs: its place, and where its number (that in the list of models) stands."""

    x: float
    y: float
    number_x: float
    number_y: float
    number: int
    label: str


@dataclass(frozen=True)
class Costs:
    """Costs against speed. `free` is where dots without a cost stand, if there are any."""

    dots: tuple[Dot, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    free: float | None


@dataclass(frozen=True)
class Curve:
    """Progress: the points of a stepped line, as the attribute `points` wants them."""

    points: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    last: tuple[float, float]


@dataclass(frozen=True)
class Strip:
    """A model's distribution in a line of the table: whiskers, box, median, and where 1 is."""

    one: float
    least: float
    lower: float
    middle: float
    upper: float
    greatest: float


def distribution(bins: Sequence[Bin]) -> Distribution | None:
    """The tasks by their best speedup; None without any."""
    if not bins:
        return None
    most = max(each.tasks for each in bins)
    step = (WIDTH - LEFT - RIGHT) / len(bins)
    room = HEIGHT - TOP - BOTTOM - 14  # for the number on top of a column
    columns, ticks, one = [], [], None
    for place, each in enumerate(bins):
        x, height = LEFT + place * step, room * each.tasks / most
        label = (
            f"under {each.high:.3g}×" if each.low is None
            else f"{each.low:.3g}× or more" if each.high is None
            else f"{each.low:.3g}× to {each.high:.3g}×"
        )  # fmt: skip
        slow = each.high is not None and each.high <= 1
        box = (_r(x + 1), _r(HEIGHT - BOTTOM - height), _r(step - 2), _r(height))
        columns.append(Column(*box, each.tasks, label, slow))
        if each.low is not None and (len(bins) <= 8 or math.log2(each.low).is_integer()):
            ticks.append(Tick(_r(x), f"{each.low:.2g}"))
        if each.low == 1:
            one = _r(x)
    return Distribution(tuple(columns), tuple(ticks), one)


def costs(models: Sequence[ModelLine]) -> Costs | None:
    """The mean speedup of each model by its dollars a kernel; None if no model has known costs."""
    known = [
        (line, line.mean, dollars)
        for line in models
        if line.mean is not None and (dollars := line.usd_per_task) is not None
    ]
    if not known:
        return None
    paid = [math.log10(max(dollars, _LEAST_DOLLARS)) for _, _, dollars in known if dollars > 0]
    any_free = len(paid) < len(known)
    left = LEFT + (44 if any_free else 14)
    low, high = (min(paid), max(paid)) if paid else (0.0, 0.0)
    low, high = (low, high) if high - low > 0.5 else (low - 0.25, high + 0.25)
    free = LEFT + 20 if any_free else None

    def x(dollars: float) -> float:
        if not dollars > 0:
            return LEFT + 20
        return left + (math.log10(max(dollars, _LEAST_DOLLARS)) - low) / (high - low) * (WIDTH - RIGHT - 14 - left)

    y, y_ticks = _ratio_axis([mean for _, mean, _ in known])
    dots: list[Dot] = []
    for line, mean, dollars in known:
        at, up = _r(x(dollars)), y(mean)
        label = f"{line.model[:60]}: {mean:.2f}×, {_dollars(dollars)} a kernel"
        dots.append(Dot(at, up, *_free_place(at, up, dots), line.number, label))
    x_ticks = [Tick(_r(x(value)), _dollars(value)) for value in _amounts(low, high)] if paid else []
    return Costs(tuple(dots), tuple(x_ticks), y_ticks, free)


def _free_place(at: float, up: float, dots: Sequence[Dot]) -> tuple[float, float]:
    """Where a number can stand without covering another: at its dot, else in rings around it."""
    rings = [(at, up)]
    for ring in range(1, _RINGS):
        angles = [2 * math.pi * step / (8 * ring) for step in range(8 * ring)]
        rings += [(at + ring * _APART * math.cos(angle), up - ring * _APART * math.sin(angle)) for angle in angles]
    for across, high in rings:
        inside = LEFT < across < WIDTH - RIGHT and TOP < high < HEIGHT - BOTTOM - 4
        if inside and all(math.hypot(dot.number_x - across, dot.number_y - high) >= _APART for dot in dots):
            return _r(across), _r(high)
    return at, up


def curve(progress: Sequence[Progress]) -> Curve | None:
    """The geometric mean of the best speedups over the days; None without any."""
    if not progress:
        return None
    y, y_ticks = _ratio_axis([1.0, *(each.mean for each in progress)])
    first, last = progress[0].day.toordinal(), progress[-1].day.toordinal()
    days = max(last - first, 1)
    width = WIDTH - LEFT - RIGHT - 8

    def x(ordinal: int) -> float:
        return _r(LEFT + width * (ordinal - first + (last == first)) / days)

    points = [(float(LEFT), y(1.0))]
    for each in progress:
        at = x(each.day.toordinal())
        points += [(at, points[-1][1]), (at, y(each.mean))]
    shown = " ".join(f"{across:g},{up:g}" for across, up in points)
    places = {first: progress[0], last: progress[-1]}
    ticks = tuple(Tick(x(at), each.day.isoformat()) for at, each in places.items())
    return Curve(shown, ticks, y_ticks, points[-1])


def strip_axis(models: Sequence[ModelLine]) -> speedup_bars.Axis:
    """The axis that the distributions of all models share."""
    spreads = [line.spread for line in models if line.spread is not None]
    return speedup_bars.axis(Ratio(each.middle, each.least, each.greatest) for each in spreads)


def strip(axis: speedup_bars.Axis, spread: Spread) -> Strip:
    """A model's distribution on that axis."""
    return Strip(axis.x(1.0), *(axis.x(value) for value in vars(spread).values()))


def _ratio_axis(values: Sequence[float]) -> tuple[Callable[[float], float], tuple[Tick, ...]]:
    """A vertical logarithmic axis on which these ratios lie: where a ratio stands, and the marks."""
    logs = [math.log2(min(max(value, _RATIOS[0]), _RATIOS[-1])) for value in values]
    low, high = min(logs) - 0.1, max(logs) + 0.1

    def y(value: float) -> float:
        share = (math.log2(min(max(value, _RATIOS[0]), _RATIOS[-1])) - low) / (high - low)
        return _r(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP))

    inside = [value for value in _RATIOS if low <= math.log2(value) <= high]
    every = -(-len(inside) // _MOST_TICKS)
    return y, tuple(Tick(y(value), f"{value:g}×") for value in inside[:: max(every, 1)])


def _amounts(low: float, high: float) -> list[float]:
    """A few multiples of powers of ten between two logarithms; the powers alone where there are many."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    steps = (1, 1.5, 2, 3, 5, 7) if high - low < 0.8 else (1, 2, 5) if high - low < 1.6 else (1,)
    found = [step * 10.0**power for power in powers for step in steps]
    return [value for value in found if low <= math.log10(value) <= high]


def _dollars(value: float) -> str:
    return f"${value:.3g}"


def _r(value: float) -> float:
    return round(value, 1)
