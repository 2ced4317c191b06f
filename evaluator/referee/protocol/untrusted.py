"""Reading what a profiled runner answers: a candidate shares that process, so every value is checked for its form.

What passes is still a claim. These checks only see to it that the profile is of the promised form, of bounded size,
and holds no control characters for whoever prints it.
"""

from typing import Any


def text(value: Any, limit: int = 80) -> str:
    """A short printable line."""
    kept = "".join(char if char.isprintable() else " " for char in str(value)[: 4 * limit])
    kept = " ".join(kept.split())
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def number(value: Any, *, at_most: float = 1e18, digits: int = 4) -> float:
    """A finite number from 0 to `at_most`.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError(f"no number: {text(value, 40)}")
    if not 0 <= value <= at_most:
        raise ValueError(f"out of range: {text(value, 40)}")
    return round(float(value), digits)


def share(value: Any) -> float:
    """A number from 0 to 1.

    Raises:
        ValueError: it is none.
    """
    return number(value, at_most=1.0 + 1e-9)


def rows(value: Any, *, width: int, limit: int) -> list[list[Any]]:
    """At most `limit` rows of `width` entries each.

    Raises:
        ValueError: it is no such table.
    """
    if not isinstance(value, list):
        raise ValueError("no table")
    for row in value[:limit]:
        if not isinstance(row, list) or len(row) != width:
            raise ValueError("a row of another width")
    return value[:limit]
