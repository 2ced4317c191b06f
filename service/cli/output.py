"""The output of commands: one JSON object or a table on stdout, everything else on stderr."""

import itertools
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from tasks.outcomes import WALL, Clock

_WIDE = 200
_GAP = 2  # between two columns
_JOINTS = re.compile(r"[^\s/_,:-]+[/_,:-]*|[/_,:-]+")  # the parts of words, each with the signs that it ends with

if TYPE_CHECKING:
    from rich.console import Console

    from db.records import JobRecord


def print_json(value: Mapping[str, Any]) -> None:
    """Print exactly one JSON object on stdout."""
    print(json.dumps(value, indent=2, allow_nan=False, default=str, ensure_ascii=True))


def note(text: str) -> None:
    """Print one line on stderr."""
    print(text, file=sys.stderr)


def make_console(*, stderr: bool = False) -> "Console":
    """A console that shows colours only on a terminal. Elsewhere it is `COLUMNS` wide, or 200 characters without it."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else shutil.get_terminal_size((_WIDE, 0)).columns
    return Console(
        file=stream, width=width, highlight=False, emoji=False, soft_wrap=False, no_color=not stream.isatty()
    )


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """Print a table on stdout. `right` names the columns that are aligned right. Cells are never read as markup.

    No word is broken: a column is as wide as its longest word at least. Where there is no room for that, words are
    broken at their joints (`starter/` `rmsnorm_gelu`); and where there is none for these either, each row is printed as
    lines of its own, a line for each cell.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = make_console()
    cells = [[plain(value) for value in row] for row in rows]
    by_column = [(name, *(row[place] for row in cells)) for place, name in enumerate(columns)]
    widths = _widths(by_column, console.width)
    if widths is None:
        widths = _widths(by_column, console.width, _JOINTS)
        if widths is not None:
            cells = [[_broken(cell, width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    if widths is None:
        _print_stacked(console, columns, cells)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, justify="right" if column in right else "left", width=width)
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def _print_stacked(console: "Console", columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.text import Text

    indent = max(map(len, columns)) + _GAP
    for number, row in enumerate(cells):
        if number:
            console.print()
        for column, cell in zip(columns, row, strict=True):
            lines = wrap(cell, max(console.width - indent, 1), break_long_words=False, break_on_hyphens=False)
            text = f"\n{' ' * indent}".join(lines or ["-"])
            console.print(Text(f"{column:<{indent}}{text}"), soft_wrap=True)


def _broken(text: str, width: int) -> str:
    """A text in lines of at most `width`, in which words that are longer are broken at their joints."""
    lines = [""]
    for word in text.split():
        lines.append(f"{lines.pop()} {word}".lstrip())
        while len(lines[-1]) > width and (parts := _JOINTS.findall(word)):
            before = lines.pop()[: -len(word)]
            fitting = list(itertools.accumulate(parts))
            number = sum(len(before) + len(each) <= width for each in fitting)
            if number == 0 and not before:
                lines.append(word)
                break
            head = fitting[number - 1] if number else ""
            word = word[len(head) :]
            lines += [f"{before}{head}".rstrip(), word]
    return "\n".join(lines)


def _widths(
    columns: Sequence[Sequence[str]], room: int, word_pattern: re.Pattern[str] = re.compile(r"\S+")
) -> list[int] | None:
    """How wide each column is, given its texts; None if their words have no room side by side.

    Columns get what their longest text needs, or where that is too much for all, their longest word and equal parts of
    what is left.
    """
    from rich.cells import cell_len

    least = [
        max((cell_len(word) for text in texts for word in word_pattern.findall(text)), default=1) for texts in columns
    ]
    most = [max(map(cell_len, texts)) for texts in columns]
    left = room - _GAP * (len(columns) - 1) - sum(least)
    if left < 0:
        return None
    widths = least
    while left and (short := [place for place, width in enumerate(widths) if width < most[place]]):
        for place in short[:left]:
            widths[place] += 1
        left -= min(left, len(short))
    return widths


def plain(value: object) -> str:
    """The text of a cell: a dash for an unknown value, and no control characters for a terminal to act on."""
    text = "-" if value is None or value == "" else str(value)
    return "".join(char if char.isprintable() else " " for char in text)


def ratio(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """A speedup with its interval: `1.52 (1.49-1.55)`."""
    if value is None:
        return "-"
    if low is None or high is None:
        return f"{value:.2f}"
    return f"{value:.2f} ({low:.2f}-{high:.2f})"


def latency(value_ms: float | None, clock: Clock = WALL) -> str:
    """A latency in the clock's unit: times with three decimals below 100 ms, else none; counts whole."""
    if value_ms is None:
        return "-"
    return clock.figure(value_ms, digits=3 if value_ms < 100 else 0)


def job_json(job: "JobRecord") -> dict[str, Any]:
    """A job as JSON, without its owner and the source of its task."""
    values = asdict(job)
    task = values.pop("task")
    task.pop("source", None)
    del values["owner"]
    return {**values, "task": {**task, "ref": job.task.ref}}
