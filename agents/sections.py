"""The sections of a prompt: XML-like tags around bodies that cannot close or open one themselves.

A body may be hostile (a task, a candidate, compiler output). Anything in it that looks like a tag of ours gets one
backslash after the `<`, and `parse` takes it away again, so that every body survives the way there and back unchanged.
"""

import re
from collections.abc import Mapping

SECTIONS = (
    "request",
    "device",
    "platform",
    "task",
    "reference",
    "exemplar",
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
_TAG_IN_BODY = re.compile(rf"<(?=\\*\s*/?\s*(?:{_NAMES})\b)", re.IGNORECASE)
_ESCAPED_TAG = re.compile(rf"<\\(?=\\*\s*/?\s*(?:{_NAMES})\b)", re.IGNORECASE)
_SECTION = re.compile(rf"^<({_NAMES})>\n(.*?)\n</\1>$", re.MULTILINE | re.DOTALL)


def render(sections: Mapping[str, str]) -> str:
    """The text of a user message that holds these sections in this order, bodies escaped.

    Raises:
        ValueError: a name is not one of SECTIONS.
    """
    unknown = set(sections) - set(SECTIONS)
    if unknown:
        raise ValueError(f"unknown prompt section {sorted(unknown)[0]!r}; known: {', '.join(SECTIONS)}")
    return "\n\n".join(f"<{name}>\n{_escape(body)}\n</{name}>" for name, body in sections.items())


def parse(text: str) -> dict[str, str]:
    """The sections that `render` wrote into a message, bodies as they were; text around them is ignored.

    Where a name occurs twice (which `render` never writes), the first counts.
    """
    found: dict[str, str] = {}
    for match in _SECTION.finditer(text):
        found.setdefault(match[1], _ESCAPED_TAG.sub("<", match[2]))
    return found


def outside(text: str) -> str:
    """What a message says before, between and after its sections."""
    return _SECTION.sub("", text).strip()


def _escape(body: str) -> str:
    clean = body.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate could not be sent
    return _TAG_IN_BODY.sub(r"<\\", clean)
