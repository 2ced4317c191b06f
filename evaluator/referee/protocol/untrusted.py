"""Checks on the answer of a profiled runner. A candidate shares that process, so the form of every value is checked.

A value that passes is still a claim. The checks only ensure that the profile has the promised form and a bounded size,
and that it holds no control characters, because it will be printed.
"""

from typing import Any


def text(value: Any, limit: int = 80) -> str:
    """The value as one printable line of at most `limit` characters."""
    kept = "".join(char if char.isprintable() else " " for char in str(value)[: 4 * limit])
    kept = " ".join(kept.split())
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def number(value: Any, *, at_most: float = 1e18, digits: int = 4) -> float:
    """A finite number from 0 to `at_most`, rounded to `digits` decimals.

    Raises:
        ValueError: the value is no such number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError(f"no number: {text(value, 40)}")
    if not 0 <= value <= at_most:
        raise ValueError(f"out of range: {text(value, 40)}")
    return round(float(value), digits)


def share(value: Any) -> float:
    """A number from 0 to 1.

    Raises:
        ValueError: the value is no such number.
    """
    return number(value, at_most=1.0 + 1e-9)


def rows(value: Any, *, width: int, limit: int) -> list[list[Any]]:
    """The first `limit` rows of a table with `width` entries in each row.

    Raises:
        ValueError: the value is no such table.
    """
    if not isinstance(value, list):
        raise ValueError("no table")
    for row in value[:limit]:
        if not isinstance(row, list) or len(row) != width:
            raise ValueError("a row of another width")
    return value[:limit]
