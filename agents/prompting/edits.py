"""Anchored edits: a reply that changes a file by quoting what is there and what should stand in its place."""

import re
from dataclasses import dataclass

MAX_EDITS = 64

_MARK = re.compile(
    r"^(?:(?P<search><{5,9}+ ?SEARCH)|(?P<middle>={5,9}+)|(?P<replace>>{5,9}+ ?REPLACE))[ \t]*+(?:\n|\Z)", re.MULTILINE
)
_NOT_CLOSED = "an edit block is not closed; each needs SEARCH, =======, and REPLACE lines"


class EditError(ValueError):
    """An edit that cannot be made. Its text tells the model which and why."""


@dataclass(frozen=True)
class Edit:
    """Put `new` in the place of `old`; both are whole lines."""

    old: str
    new: str


def find_edits(reply: str) -> tuple[Edit, ...]:
    """The edits in a reply, in order; none if it holds no edit block.

    Raises:
        EditError: a block is not closed, or there are more than MAX_EDITS.
    """
    edits: list[Edit] = []
    opening: re.Match[str] | None = None  # of the block that the mark is in
    middle: re.Match[str] | None = None
    for mark in _MARK.finditer(reply):
        if mark["search"] is not None:
            if opening is not None:
                raise EditError(_NOT_CLOSED)
            if len(edits) == MAX_EDITS:
                raise EditError(f"there are too many edits; at most {MAX_EDITS} are made, give the whole file instead")
            opening = mark
        elif mark["middle"] is not None:
            if opening is not None and middle is None:
                middle = mark
        elif opening is not None and middle is not None:
            edits.append(Edit(reply[opening.end() : middle.start()], reply[middle.end() : mark.start()]))
            opening = middle = None
    if opening is not None:
        raise EditError(_NOT_CLOSED)
    return tuple(edits)


def apply_edits(source: str, edits: tuple[Edit, ...]) -> str:
    """The file after all edits, each made on what the ones before it left.

    Raises:
        EditError: what an edit searches for is not in the file, or is there more than once, or is empty.
    """
    for number, edit in enumerate(edits, start=1):
        if not edit.old.strip():
            raise EditError(f"edit {number} searches for nothing; quote the lines that it replaces")
        found = source.count(edit.old)
        if found != 1:
            first = edit.old.strip().splitlines()[0][:80]
            what = "is not in the file" if found == 0 else f"is in the file {found} times"
            raise EditError(f"the text that edit {number} searches for {what} (it begins with {first!r})")
        source = source.replace(edit.old, edit.new)
    return source
