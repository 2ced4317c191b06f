"""Times of a whole model as bars on one axis, the first of them parted by region. Lengths are percent of the width."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from service.views.models import TimeBar

MOST_PARTS = 6
"""Smaller parts than these are one."""

_LABELLED = 9.0  # percent: a narrower segment has no room for its label on a phone
_TICKS = 5


@dataclass(frozen=True)
class Segment:
    """A piece of a bar.

    Attributes:
        kind: its colour: a digit for a region, `others`, `rest`, `compile` or `candidate`.
        name: what it is.
        label: what stands in it; empty if it is too narrow.
        x, width: in percent.
        ms: its time.
        share: of its bar.
    """

    kind: str
    name: str
    label: str
    x: float
    width: float
    ms: float
    share: float


@dataclass(frozen=True)
class Bar:
    """One bar: its name in words, its time, and its segments from left to right."""

    name: str
    ms: float
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Tick:
    """A mark on the axis: its place in percent, and its time."""

    x: float
    ms: float


@dataclass(frozen=True)
class Picture:
    """Bars on one axis that begins at 0 and ends with the longest."""

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]


NAMES = {"eager": "eager", "compile": "torch.compile", "candidate": "with its kernels"}


def picture(bars: Sequence[TimeBar]) -> Picture | None:
    """The bars as they are drawn; None without any."""
    longest = max((bar.ms for bar in bars), default=0.0)
    if not longest > 0 or not math.isfinite(longest):
        return None
    return Picture(tuple(_bar(bar, longest) for bar in bars), tuple(_ticks(longest)))


def _bar(bar: TimeBar, longest: float) -> Bar:
    shown, others = bar.parts[:MOST_PARTS], bar.parts[MOST_PARTS:]
    pieces = [(str(place), part.name, part.name.partition("_")[0], part.share) for place, part in enumerate(shown)]
    if others:
        name = f"{len(others)} smaller regions" if len(others) > 1 else "1 smaller region"
        pieces.append(("others", name, "…", sum(part.share for part in others)))
    if not pieces:
        pieces = [("rest" if bar.name == "eager" else bar.name, NAMES.get(bar.name, bar.name), "", 1.0)]
    elif bar.rest > 0.0005:
        pieces.append(("rest", "everything else", "else", bar.rest))
    scale = 100 * bar.ms / longest
    x, segments = 0.0, []
    for kind, name, label, share in pieces:
        width = scale * share
        fits = width >= _LABELLED and len(label) <= 4
        segments.append(Segment(kind, name, label if fits else "", x, width, bar.ms * share, share))
        x += width
    return Bar(NAMES.get(bar.name, bar.name), bar.ms, tuple(segments))


def _ticks(longest: float) -> list[Tick]:
    """Marks at 1, 2 or 5 times a power of ten, a few of them."""
    least = longest / _TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)
    return [Tick(100 * place * step / longest, place * step) for place in range(math.floor(longest / step + 1e-9) + 1)]
