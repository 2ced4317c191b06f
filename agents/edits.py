"""Anchored edits: a reply that changes a file by quoting what is there and what should stand in its place."""

import re
from dataclasses import dataclass

MAX_EDITS = 64

_EDIT = re.compile(
    r"^<{5,9} ?SEARCH[ \t]*\n(?P<old>.*?)^={5,9}[ \t]*\n(?P<new>.*?)^>{5,9} ?REPLACE[ \t]*$", re.MULTILINE | re.DOTALL
)
_OPENING = re.compile(r"^<{5,9} ?SEARCH[ \t]*$", re.MULTILINE)


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
    edits = tuple(Edit(match["old"], match["new"]) for match in _EDIT.finditer(reply))
    if len(edits) != len(_OPENING.findall(reply)):
        raise EditError("an edit block is not closed; each needs SEARCH, =======, and REPLACE lines")
    if len(edits) > MAX_EDITS:
        raise EditError(f"there are {len(edits)} edits; at most {MAX_EDITS} are made, give the whole file instead")
    return edits


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
