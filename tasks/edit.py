"""Replaces expressions in Python text, whose comments and layout stay as they are. The text is never executed."""

import ast
from collections.abc import Sequence


def unix_lines(source: str) -> str:
    """The text with line feeds at the ends of its lines, as `replaced` needs it."""
    return source.replace("\r\n", "\n").replace("\r", "\n")


def replaced(source: str, edits: Sequence[tuple[ast.expr | ast.keyword, str]]) -> str:
    """The source with the text of each node, one of the source's own tree, replaced. Nodes must not overlap."""
    data, starts = source.encode(), [0]
    for line in data.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    spans = [
        (starts[node.lineno - 1] + node.col_offset, starts[(node.end_lineno or node.lineno) - 1] + _end(node), text)
        for node, text in edits
    ]
    for first, last, text in sorted(spans, reverse=True):
        data = data[:first] + text.encode() + data[last:]
    return data.decode()


def _end(node: ast.expr | ast.keyword) -> int:
    assert node.end_col_offset is not None  # of a tree that was parsed from text
    return node.end_col_offset
