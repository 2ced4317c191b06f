"""Which elements of which buffers a piece of a generated kernel reads and writes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agents.builtin.analysis.affine import Affine, read_affine
from agents.builtin.analysis.loops import Line, Node

POINTER = re.compile(r"\b(?:in_out_ptr|in_ptr|out_ptr)\d+\b")
ALIAS = re.compile(r"^auto ((?:in_out_ptr|in_ptr|out_ptr)\d+) = ((?:in_out_ptr|in_ptr|out_ptr)\d+);$")
GUARD = re.compile(r"^if\(C10_(?:UN)?LIKELY\((.*)\)\)$")
_LOWER = re.compile(r"^\(?(\w+) >= (?:\(?)(-?\d+)L?\)*$")
_UPPER = re.compile(r"^\(?(\w+) < (?:\(?)(-?\d+)L?\)*$")
_COUNT = re.compile(r"^,\s*(\d+)L?\)")


@dataclass(frozen=True)
class Access:
    """An access to `lanes` elements of `pointer` from `index` on.

    Attributes:
        pointer: a parameter of the kernel, or an alias of one.
        write: whether it writes (or may write).
        index: None: the index has an unknown form.
        lanes: the number of elements.
        ranges: first and last value of each variable of the loops within the piece of code that was searched.
    """

    pointer: str
    write: bool
    index: Affine | None
    lanes: int
    ranges: Mapping[str, tuple[int, int]]


def find_accesses(nodes: tuple[Node, ...], lanes: int) -> Iterator[Access]:
    """All accesses to buffers, in order. `lanes` is the most elements of a vector load or store without a count."""
    yield from _find(nodes, {}, {}, lanes)


def _find(
    nodes: tuple[Node, ...], ranges: dict[str, tuple[int, int]], steps: dict[str, int], lanes: int
) -> Iterator[Access]:
    for node in nodes:
        if isinstance(node, Line):
            yield from _in_line(node.text, ranges, lanes)
            continue
        inner, inner_steps = dict(ranges), dict(steps)
        if node.var is not None:
            inner[node.var] = (node.start, node.start + (node.trips - 1) * node.step)
            inner_steps[node.var] = node.step
        elif node.head and (guard := GUARD.match(node.head[-1])):
            inner = narrowed_ranges(inner, inner_steps, guard[1])
        for text in node.head:
            yield from _in_line(text, ranges, lanes)
        yield from _find(node.body, inner, inner_steps, lanes)


def narrowed_ranges(
    ranges: dict[str, tuple[int, int]], steps: dict[str, int], condition: str
) -> dict[str, tuple[int, int]]:
    """The ranges within which a condition such as `x1 >= 0 && x1 < 992` holds. Terms of another form are ignored."""
    result = dict(ranges)
    for part in condition.split("&&"):
        if (lower := _LOWER.match(part.strip())) and lower[1] in result:
            first, last = result[lower[1]]
            step = steps[lower[1]]
            missing = max(0, int(lower[2]) - first)
            result[lower[1]] = (first + -(-missing // step) * step, last)
        elif (upper := _UPPER.match(part.strip())) and upper[1] in result:
            first, last = result[upper[1]]
            step = steps[upper[1]]
            excess = max(0, last - int(upper[2]) + 1)
            result[upper[1]] = (first, last - -(-excess // step) * step)
    return result


def _in_line(text: str, ranges: dict[str, tuple[int, int]], lanes: int) -> Iterator[Access]:
    if ALIAS.match(text):
        return
    for match in POINTER.finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        if after.startswith("["):
            inside, rest = _bracketed(after, "[", "]")
            write = not before.strip() and re.match(r"\s*[-+*/|&^]?=(?!=)", rest) is not None
            yield Access(match[0], write, read_affine(inside), 1, ranges)
        elif after.startswith(" + (") and before.endswith((".store(", "loadu(", "from(")):
            inside, rest = _bracketed(after[3:], "(", ")")
            count = _COUNT.match(rest)
            yield Access(
                match[0], before.endswith(".store("), read_affine(inside), int(count[1]) if count else lanes, ranges
            )
        else:
            yield Access(match[0], True, None, 1, ranges)


def _bracketed(text: str, opening: str, closing: str) -> tuple[str, str]:
    """The text between the first bracket and its partner, and the text after it."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character == opening) - (character == closing)
        if depth == 0:
            return text[1:position], text[position + 1 :]
    return text, ""


def pointer_aliases(nodes: tuple[Node, ...]) -> dict[str, str]:
    """Aliases of a kernel's pointers (`auto out_ptr0 = in_out_ptr0;`), each with the pointer."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, Line) and (match := ALIAS.match(node.text)):
            found[match[1]] = found.get(match[2], match[2])
    return found
