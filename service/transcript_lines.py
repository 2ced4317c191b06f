"""The lines of a transcript: foreign text wrapped or kept, without anything in it that a terminal would obey."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap

WIDTH = 80
_FENCE = re.compile(r"^[ \t]*(?P<mark>`{3,}|~{3,})")
_BULLET = re.compile(r"[ \t]*(?:[-*+]|\d{1,3}[.)]) ")


@dataclass(frozen=True)
class Line:
    """One line; `kind` is heading, label, text, code, result or event, for whoever shows it in colours."""

    kind: str
    text: str


def label(name: str, detail: str = "") -> Line:
    """`[name] detail`."""
    return Line("label", clean(f"[{name}] {detail}".rstrip()))


def prose(text: str) -> Iterator[Line]:
    """Sentences wrapped, fenced blocks as they are."""
    mark: str | None = None
    for raw in _lines(text):
        fence = _FENCE.match(raw)
        if mark is None and fence:
            mark = fence["mark"]
            yield Line("code", clean(raw))
        elif mark is not None:
            yield Line("code", clean(raw))
            if fence and fence["mark"].startswith(mark) and raw.strip() == fence["mark"]:
                mark = None
        else:
            bullet = _BULLET.match(raw)
            yield from wrapped("text", raw, indent=" " * len(clean(bullet[0])) if bullet else "")


def verbatim(text: str) -> Iterator[Line]:
    """Lines as they are."""
    return (Line("code", clean(raw)) for raw in _lines(text))


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")


def wrapped(kind: str, text: str, *, indent: str = "") -> Iterator[Line]:
    """One paragraph in lines of WIDTH, all but the first indented; words stay whole."""
    shown = clean(" ".join(text.split("\n")))
    for line in wrap(shown, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [""]:
        yield Line(kind, line)


def clean(text: str) -> str:
    """One line of foreign text with nothing in it that a terminal would obey."""
    return "".join(char if char.isprintable() else " " for char in text.expandtabs(4))
