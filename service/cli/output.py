"""The output of commands: one JSON object or a table on stdout, everything else on stderr."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tasks.outcomes import WALL, Clock

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
    """A console that shows colours only on a terminal. Elsewhere it is 200 characters wide."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 200
    return Console(
        file=stream, width=width, highlight=False, emoji=False, soft_wrap=False, no_color=not stream.isatty()
    )


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """Print a table on stdout. `right` names the columns that are aligned right. Cells are never read as markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(value)) for value in row))
    make_console().print(table)


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
