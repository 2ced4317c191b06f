"""The body of a generated kernel as a tree of lines, blocks and loops."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from agents.builtin.errors import NotTranslatable

_FOR = re.compile(r"for\s*\((?:int64_t|long) (\w+)\s*=\s*(-?\d+)L?; \1\s*<\s*(-?\d+)L?; \1(?:\+=(\d+)L?|\+\+)\)$")
_OPENS = re.compile(r"(for\s*\(.*\)|if\s*\(.*\)|else( if\s*\(.*\))?|#pragma .*)$")


@dataclass(frozen=True)
class Line:
    """One line without a brace."""

    text: str


@dataclass(frozen=True)
class Block:
    """Nodes between braces.

    Attributes:
        head: the lines before the opening brace: pragmas, `if (…)`, the header of a loop.
        body: the nodes.
        var: the variable of a loop with constant bounds; None: this is no such loop.
        start, stop, step: its bounds; `stop` is not reached.
    """

    head: tuple[str, ...]
    body: tuple["Node", ...]
    var: str | None = None
    start: int = 0
    stop: int = 0
    step: int = 1

    @property
    def pragmas(self) -> tuple[str, ...]:
        """The pragmas in the head."""
        return tuple(line for line in self.head if line.startswith("#pragma"))

    @property
    def trips(self) -> int:
        """How often the body of a loop runs."""
        return max(0, -((self.start - self.stop) // self.step))


Node: TypeAlias = Line | Block


def parse_body(text: str) -> tuple[Node, ...]:
    """The tree of a kernel's body.

    Raises:
        NotTranslatable: its braces do not match.
    """
    stack: list[tuple[tuple[str, ...], list[Node]]] = [((), [])]
    for line in (raw.strip() for raw in text.splitlines()):
        if not line:
            continue
        if line == "{":
            stack.append((_take_head(stack[-1][1]), []))
        elif line == "}":
            if len(stack) == 1:
                raise NotTranslatable("a kernel whose braces do not match")
            head, body = stack.pop()
            stack[-1][1].append(make_block(head, tuple(body)))
        else:
            stack[-1][1].append(Line(line))
    if len(stack) != 1:
        raise NotTranslatable("a kernel whose braces do not match")
    return tuple(stack[0][1])


def make_block(head: tuple[str, ...], body: tuple[Node, ...]) -> Block:
    """A block with this head and body; its loop variable is read from the head."""
    match = _FOR.match(head[-1]) if head else None
    if match is None:
        return Block(head, body)
    return Block(head, body, match[1], int(match[2]), int(match[3]), int(match[4] or 1))


def make_loop(var: str, start: int, stop: int, step: int, body: tuple[Node, ...], *pragmas: str) -> Block:
    """A loop with constant bounds, and pragmas before it."""
    return make_block((*pragmas, f"for(int64_t {var}={start}L; {var}<{stop}L; {var}+={step}L)"), body)


def _take_head(before: list[Node]) -> tuple[str, ...]:
    head: list[str] = []
    while before and isinstance(last := before[-1], Line) and _OPENS.match(last.text):
        if head and not last.text.startswith("#pragma"):
            break
        head.insert(0, last.text)
        before.pop()
    return tuple(head)


def render_body(nodes: tuple[Node, ...], indent: int = 1) -> str:
    """The text of a tree, indented by depth."""
    return "\n" + "".join(f"{'  ' * depth}{text}\n" for depth, text in _lines(nodes, indent))


def _lines(nodes: tuple[Node, ...], depth: int) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, Line):
            yield depth, node.text
        else:
            yield from ((depth, text) for text in node.head)
            yield depth, "{"
            yield from _lines(node.body, depth + 1)
            yield depth, "}"


def walk(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """All nodes of a tree, outer ones first."""
    for node in nodes:
        yield node
        if isinstance(node, Block):
            yield from walk(node.body)


def map_lines(nodes: tuple[Node, ...], change: Callable[[str], str]) -> tuple[Node, ...]:
    """The tree with each line changed, those of heads included."""
    return tuple(
        Line(change(node.text))
        if isinstance(node, Line)
        else make_block(tuple(change(text) for text in node.head), map_lines(node.body, change))
        for node in nodes
    )


def map_blocks(nodes: tuple[Node, ...], change: Callable[[Block], Block]) -> tuple[Node, ...]:
    """The tree with each block changed, inner ones first."""
    return tuple(
        change(replace(node, body=map_blocks(node.body, change))) if isinstance(node, Block) else node for node in nodes
    )
