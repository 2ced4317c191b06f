"""Tables of the pages under docs/, read so that tests can hold them to the code."""

import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

_UNITS = {"": 1.0, "%": 1e-2, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "MiB": float(1 << 20)}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?(?:e-?\d+)?) ?(%|ms|µs|s|MiB)?(?=[,;]|$)")


def table(page: str, head: str) -> dict[str, list[str]]:
    """The rows of the page's table whose head begins with the cell `head`: the other cells, by the first one."""
    lines = page.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {head} |"))
    rows = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        first, *others = (cell.strip() for cell in line.strip("|").split("|"))
        rows[first[1:-1] if re.fullmatch(r"`[^`]+`", first) else first] = others
    return rows


def quantities(cell: str) -> list[float]:
    """The numbers of a cell, in units without prefixes: `64 MiB`, `5 %, 1.1; 2 %, 1.25`."""
    return [float(number) * _UNITS[unit] for number, unit in _QUANTITY.findall(cell)]


def constant(name: str) -> list[float]:
    """The numbers in the constant of this dotted name, of the referee (`timing.call_times.Plan.sets`) or of `tasks`."""
    parts = name.split(".")
    size = next(size for size, part in enumerate(parts) if not part.islower())
    package = () if parts[0] == "tasks" else ("evaluator", "referee")
    value: Any = importlib.import_module(".".join((*package, *parts[:size])))
    for part in parts[size:]:
        value = getattr(value, part)
    return list(_numbers(value))


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _numbers(each)
    else:
        yield float(value)
