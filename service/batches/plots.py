"""The plots of a batch as SVG: fast_p over p, the distribution of speedups, and bars by category.

They are written by hand, because three plain kinds need no library: matplotlib would bring numpy and fonts to every
host, and plotly draws files by a browser alone. Texts are escaped by ElementTree. The same values give the same bytes.
Colours are those of Okabe and Ito 2008 (Color Universal Design), which colour-blind readers can tell apart; line styles
say the same again.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from xml.etree import ElementTree

from service.batches.statistics import Estimate

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("", "7 3", "2 2.5", "8 3 2 3", "12 4")
_INK, _SOFT, _GRID = "#222222", "#666666", "#e4e4e4"
_FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"
_WIDTH = 720.0
_CHAR = 0.55  # of the font size, for the mean width of a letter
_LABEL_CHARS = 40
_LEAST, _MOST = 2.0**-6, 2.0**12  # speedups beyond are drawn at the edge


@dataclass(frozen=True)
class Curve:
    """fast_p of a model.

    Attributes:
        label: its name.
        steps: the speeds of all samples that passed, each with the share of tasks that it stands for, in any order.
        band: the 95 % interval of fast_p at some p, ascending.
    """

    label: str
    steps: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, Estimate]]


@dataclass(frozen=True)
class Spread:
    """The speedups of a model that count, and what stands beside them."""

    label: str
    speedups: Sequence[float]
    note: str


@dataclass(frozen=True)
class Bar:
    """A model in a category: the share of correct samples, and that of those that are faster, with its interval."""

    correct: float
    faster: Estimate


def fast_p_plot(curves: Sequence[Curve], over: str) -> str:
    """fast_p over p, on a logarithmic axis, with a band for the interval."""
    speeds = [speed for curve in curves for speed, _ in curve.steps]
    low, high = speed_range(speeds)
    rows = _legend_rows([curve.label for curve in curves], _WIDTH - 90)
    top = 18.0 + 18 * len(rows)
    plot = _Area(left=64, top=top, width=_WIDTH - 64 - 26, height=300)
    root = _svg(
        _WIDTH, plot.bottom + 52, "fast_p over p", f"Share of tasks with a kernel over p times as fast as {over}"
    )
    _legend(root, rows, 64, 20)
    for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        y = plot.y(share)
        _line(root, plot.left, y, plot.right, y, _GRID if share else _SOFT)
        _text(root, plot.left - 8, y + 4, f"{share:.0%}", anchor="end", colour=_SOFT)
    _speed_axis(root, plot, low, high)
    _text(root, plot.left + plot.width / 2, plot.bottom + 42, f"p (times as fast as {over})", anchor="middle", size=13)
    middle = plot.top + plot.height / 2
    _text(root, 17, middle, "fast_p: correct and faster than p", anchor="middle", size=13, turned=True)
    for number, curve in enumerate(curves):
        points = [(plot.x_log(p, low, high), each) for p, each in curve.band if low <= p <= high]
        edge = [(x, plot.y(each.value if each.high is None else each.high)) for x, each in points]
        edge += [(x, plot.y(each.value if each.low is None else each.low)) for x, each in reversed(points)]
        if edge:
            _add(root, "polygon", points=_points(edge), fill=_colour(number), fill_opacity="0.13")
    for number, curve in enumerate(curves):
        share = math.fsum(part for _, part in curve.steps)
        corners = [(plot.left, plot.y(share))]
        for speed, part in sorted(curve.steps):
            x = plot.x_log(speed, low, high)
            corners.append((x, plot.y(share)))
            share -= part
            corners.append((x, plot.y(share)))
        corners.append((plot.right, plot.y(max(share, 0.0))))
        _add(
            root,
            "polyline",
            points=_points(corners),
            fill="none",
            stroke=_colour(number),
            stroke_width="2",
            stroke_linejoin="round",
            **_dash(number),
        )
    return _written(root)


def speedups_plot(spreads: Sequence[Spread], over: str) -> str:
    """A dot for each speedup that counts, by model, with the quartiles."""
    low, high = speed_range([speedup for spread in spreads for speedup in spread.speedups])
    row_height = 74.0
    left = _margin([spread.label for spread in spreads] + [spread.note for spread in spreads], least=90)
    plot = _Area(left=left, top=16, width=_WIDTH - left - 26, height=row_height * len(spreads))
    root = _svg(_WIDTH, plot.bottom + 52, "Speedups", f"The distribution of speedups over {over} by model")
    _speed_axis(root, plot, low, high)
    _text(root, plot.left + plot.width / 2, plot.bottom + 42, f"speedup over {over}", anchor="middle", size=13)
    for number, spread in enumerate(spreads):
        colour, middle = _colour(number), plot.top + row_height * (number + 0.5)
        _text(root, plot.left - 12, middle - 2, _short(spread.label), anchor="end", size=13)
        _text(root, plot.left - 12, middle + 14, spread.note, anchor="end", colour=_SOFT, size=11)
        found = sorted(spread.speedups)
        if len(found) >= 4:
            lower, _, upper = (plot.x_log(value, low, high) for value in quantiles(found, method="inclusive"))
            box = {"x": f"{lower:.2f}", "y": f"{middle - 22:.2f}", "width": f"{upper - lower:.2f}", "height": "44"}
            _add(root, "rect", **box, rx="3", fill=colour, fill_opacity="0.14")
        for x, y in _swarm([plot.x_log(value, low, high) for value in found], middle, row_height / 2 - 9):
            dot = {"cx": str(round(x, 2)), "cy": str(round(y, 2)), "r": "3.4"}
            _add(root, "circle", **dot, fill=colour, fill_opacity="0.8", stroke="#ffffff", stroke_width="0.7")
        if len(found) >= 4:
            centre = plot.x_log(median(found), low, high)
            _line(root, centre, middle - 24, centre, middle + 24, "#ffffff", width=5)
            _line(root, centre, middle - 24, centre, middle + 24, colour, width=2.5)
        if number:
            y = plot.top + row_height * number
            _line(root, plot.left, y, plot.right, y, _GRID)
    return _written(root)


def categories_plot(labels: Sequence[str], categories: Sequence[tuple[str, Sequence[Bar | None]]], over: str) -> str:
    """Bars by category: the share of correct samples (light), and of those that are faster (solid, with its interval).

    Args:
        labels: the models.
        categories: the categories, each with a bar for each model that has tasks in it.
        over: the baseline.
    """
    bar, gap, between = 13.0, 3.0, 14.0
    block = len(labels) * (bar + gap) + between
    rows = _legend_rows(labels, _WIDTH - 40)
    left = _margin([name for name, _ in categories], least=90)
    plot = _Area(
        left=left, top=42.0 + 18 * len(rows), width=_WIDTH - left - 56, height=block * len(categories) + between / 2
    )
    root = _svg(
        _WIDTH, plot.bottom + 52, "Categories", f"Shares of correct and of faster samples over {over} by category"
    )
    _legend(root, rows, 24, 20, lines=False)
    note = f"light: correct; solid: correct and faster than {over}, with its 95 % interval"
    _text(root, 24, 20 + 18 * len(rows), note, colour=_SOFT, size=11)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = plot.left + plot.width * share
        _line(root, x, plot.top, x, plot.bottom, _GRID if share else _SOFT)
        _text(root, x, plot.bottom + 18, f"{share:.0%}", anchor="middle", colour=_SOFT)
    _text(root, plot.left + plot.width / 2, plot.bottom + 42, "share of samples, tasks alike", anchor="middle", size=13)
    for position, (name, bars) in enumerate(categories):
        top = plot.top + between / 2 + block * position
        _text(root, plot.left - 10, top + (block - between) / 2 + 4, _short(name), anchor="end", size=13)
        for number, each in enumerate(bars):
            if each is None:
                continue
            colour, y = _colour(number), top + number * (bar + gap)
            for share, opacity in ((each.correct, "0.25"), (each.faster.value, "1")):
                box = {"x": str(plot.left), "y": str(y), "width": str(round(plot.width * share, 2)), "height": str(bar)}
                _add(root, "rect", **box, fill=colour, fill_opacity=opacity)
            if each.faster.low is not None and each.faster.high is not None:
                begin, end = (plot.left + plot.width * bound for bound in (each.faster.low, each.faster.high))
                _line(root, begin, y + bar / 2, end, y + bar / 2, _INK, width=1.2)
                for x in (begin, end):
                    _line(root, x, y + 3, x, y + bar - 3, _INK, width=1.2)
            end = plot.left + plot.width * max(each.correct, each.faster.value, each.faster.high or 0.0)
            _text(root, end + 6, y + bar - 3, f"{each.faster.value:.0%}", colour=_SOFT, size=11)
    return _written(root)


def speed_range(speeds: Iterable[float]) -> tuple[float, float]:
    """The powers of two between which speedups are drawn; 1 always lies between them."""
    found = [min(max(speed, _LEAST), _MOST) for speed in speeds]
    low, high = min([0.5, *found]), max([2.0, *found])
    return 2.0 ** math.floor(math.log2(low) + 1e-9), 2.0 ** math.ceil(math.log2(high * 1.02))


@dataclass(frozen=True)
class _Area:
    """Where a plot's values are drawn."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def y(self, share: float) -> float:
        """The height of a share from 0 to 1."""
        return self.bottom - self.height * min(max(share, 0.0), 1.0)

    def x_log(self, value: float, low: float, high: float) -> float:
        """The place of a value on a logarithmic axis."""
        part = (math.log2(value) - math.log2(low)) / (math.log2(high) - math.log2(low))
        return self.left + self.width * min(max(part, 0.0), 1.0)


def _speed_axis(root: ElementTree.Element, plot: _Area, low: float, high: float) -> None:
    powers = range(round(math.log2(low)), round(math.log2(high)) + 1)
    every = math.ceil(len(powers) / 10)
    for power in powers:
        if power % every and power:
            continue
        x = plot.x_log(2.0**power, low, high)
        _line(root, x, plot.top, x, plot.bottom, _SOFT if power == 0 else _GRID)
        _text(root, x, plot.bottom + 18, f"{2.0**power:g}", anchor="middle", colour=_SOFT)
    _line(root, plot.left, plot.bottom, plot.right, plot.bottom, _SOFT)


def _swarm(places: Sequence[float], middle: float, reach: float) -> list[tuple[float, float]]:
    """Places of dots that cover each other as little as the height allows; `places` ascend."""
    columns: list[list[float]] = []
    for x in places:
        if columns and x - columns[-1][0] < 6.6:
            columns[-1].append(x)
        else:
            columns.append([x])
    most = max(map(len, columns), default=1)
    step = min(6.6, 2 * reach / most)
    return [
        (x, middle + step * (number - (len(column) - 1) / 2)) for column in columns for number, x in enumerate(column)
    ]


def _legend_rows(labels: Sequence[str], width: float) -> list[list[tuple[int, str, float]]]:
    """The labels by line, each with its number and the place where it begins."""
    rows: list[list[tuple[int, str, float]]] = [[]]
    x = 0.0
    for number, label in enumerate(map(_short, labels)):
        needed = 36 + len(label) * 13 * _CHAR + 18
        if rows[-1] and x + needed > width:
            rows.append([])
            x = 0.0
        rows[-1].append((number, label, x))
        x += needed
    return rows


def _legend(
    root: ElementTree.Element,
    rows: Sequence[Sequence[tuple[int, str, float]]],
    left: float,
    top: float,
    *,
    lines: bool = True,
) -> None:
    """Name the colours of lines, or of bars."""
    for row, labels in enumerate(rows):
        for number, label, x in labels:
            y = top + 18 * row
            dash = _dash(number) if lines else {}
            _line(root, left + x, y - 4, left + x + 28, y - 4, _colour(number), width=3 if lines else 11, **dash)
            _text(root, left + x + 36, y, label, size=13)


def _margin(labels: Iterable[str], *, least: float) -> float:
    return min(max([least, *(len(_short(label)) * 13 * _CHAR + 30 for label in labels)]), 300)


def _short(label: str) -> str:
    return label if len(label) <= _LABEL_CHARS else f"{label[: _LABEL_CHARS - 1]}…"


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _dash(number: int) -> dict[str, str]:
    dash = _DASHES[number % len(_DASHES)]
    return {"stroke_dasharray": dash} if dash else {}


def _svg(width: float, height: float, title: str, description: str) -> ElementTree.Element:
    root = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {width:g} {height:g}",
            "width": f"{width:g}",
            "height": f"{height:g}",
            "font-family": _FONT,
            "role": "img",
        },
    )
    ElementTree.SubElement(root, "title").text = title
    ElementTree.SubElement(root, "desc").text = _printable(description)
    _add(root, "rect", width=f"{width:g}", height=f"{height:g}", fill="#ffffff")
    return root


def _add(parent: ElementTree.Element, kind: str, **attributes: str) -> ElementTree.Element:
    named = {name.replace("_", "-"): value for name, value in attributes.items()}
    return ElementTree.SubElement(parent, kind, named)


def _line(
    root: ElementTree.Element, x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1, **more: str
) -> None:
    places = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    texts = {name: f"{place:.2f}" for name, place in places.items()}
    _add(root, "line", **texts, stroke=colour, stroke_width=f"{width:g}", **more)


def _text(
    root: ElementTree.Element,
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 12,
    colour: str = _INK,
    turned: bool = False,
) -> None:
    place = {"x": f"{x:.2f}", "y": f"{y:.2f}"}
    if turned:
        place["transform"] = f"rotate(-90 {x:.2f} {y:.2f})"
    element = _add(root, "text", **place, font_size=str(size), text_anchor=anchor, fill=colour)
    element.text = _printable(text)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)  # XML takes no control characters


def _points(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in places)


def _written(root: ElementTree.Element) -> str:
    return ElementTree.tostring(root, encoding="unicode") + "\n"
