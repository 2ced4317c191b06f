"""Makes text of tasks, candidates, models and errors safe to show: no hidden characters, and a limited length."""

import re
import unicodedata

MAX_SHOWN = 500
_MAX_MARKS = 3  # combining marks on one letter; more of them would cover the lines around

_KEPT = frozenset("\n\t")
_PLAIN = re.compile(r"[\x20-\x7e\n\t]*")


def shown(text: object, limit: int = MAX_SHOWN) -> str:
    """Text that is safe to show.

    Characters that are invisible or that reorder text are written as escapes. The middle of a text longer than `limit`
    is left out.
    """
    given = str(text)
    if len(given) > limit:
        tail = min(limit // 4, 60)
        given = f"{given[: limit - tail - 1]}…{given[len(given) - tail :]}"
    if _PLAIN.fullmatch(given):
        return given
    return _visible(given)


def one_line(text: object, limit: int = MAX_SHOWN) -> str:
    """`shown` on one line, with each run of white space as one blank."""
    return " ".join(shown(text, limit).split())


def _visible(text: str) -> str:
    parts: list[str] = []
    marks = 0
    for char in text:
        category = unicodedata.category(char)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if marks > _MAX_MARKS:
            continue
        hidden = category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") and char not in _KEPT
        parts.append(ascii(char)[1:-1] if hidden else char)
    return "".join(parts)
