"""The sections of a prompt: XML-like tags around bodies that cannot open or close a section.

A body is untrusted (a task, a candidate, compiler output). `render` writes a backslash after the `<` of anything in it
that looks like a tag of a section, and `parse` removes it, so that every body is read back unchanged.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

SECTIONS = (
    "request",
    "device",
    "platform",
    "task",
    "reference",
    "source_kernel",
    "translation",
    "exemplar",
    "known_kernels",
    "known_lessons",
    "candidate",
    "evaluation",
    "profile",
    "metrics",
    "scored",
    "best",
    "advice",
    "lessons",
    "history",
    "note",
)

_NAMES = "|".join(SECTIONS)
# Possessive quantifiers: the text after each `<` is read only once.
_TAG_IN_BODY = re.compile(rf"<(?=\\*+\s*+/?+\s*+(?:{_NAMES})\b)", re.IGNORECASE)
_ESCAPED_TAG = re.compile(rf"<\\(?=\\*+\s*+/?+\s*+(?:{_NAMES})\b)", re.IGNORECASE)
_OPENING = re.compile(rf"^<({_NAMES})>\n", re.MULTILINE)
_CLOSINGS = {name: re.compile(rf"\n</{name}>$", re.MULTILINE) for name in SECTIONS}


def render(sections: Mapping[str, str]) -> str:
    """A user message with these sections in this order, their bodies escaped.

    Raises:
        ValueError: a name is not one of SECTIONS.
    """
    unknown = set(sections) - set(SECTIONS)
    if unknown:
        raise ValueError(f"unknown prompt section {sorted(unknown)[0]!r}; known: {', '.join(SECTIONS)}")
    return "\n\n".join(f"<{name}>\n{_escape(body)}\n</{name}>" for name, body in sections.items())


def parse(text: str) -> dict[str, str]:
    """The sections of a message that `render` wrote, with their bodies unescaped. Text around them is ignored.

    If a name occurs twice, which `render` never writes, the first section counts.
    """
    found: dict[str, str] = {}
    for section in _sections(text):
        found.setdefault(section.name, _ESCAPED_TAG.sub("<", section.body))
    return found


def text_outside_sections(text: str) -> str:
    """The text of a message before, between and after its sections."""
    parts, end = [], 0
    for section in _sections(text):
        parts.append(text[end : section.start])
        end = section.end
    return "".join((*parts, text[end:])).strip()


@dataclass(frozen=True)
class _Section:
    name: str
    body: str
    start: int
    end: int


def _sections(text: str) -> Iterator[_Section]:
    """The sections of a message in order. A section that is not closed counts as text.

    This takes time in proportion to the text: a section that was found is not read again, and the end of a name that is
    not closed is searched only once.
    """
    unclosed: set[str] = set()
    position = 0
    while (opening := _OPENING.search(text, position)) is not None:
        name, position = opening[1], opening.end()
        closing = None if name in unclosed else _CLOSINGS[name].search(text, position)
        if closing is None:
            unclosed.add(name)
            continue
        yield _Section(name, text[position : closing.start()], opening.start(), closing.end())
        position = closing.end()


def _escape(body: str) -> str:
    clean = body.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be sent
    return _TAG_IN_BODY.sub(r"<\\", clean)
