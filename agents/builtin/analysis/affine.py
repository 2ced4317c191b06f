"""Index expressions of generated kernels as affine functions of loop variables."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tasks import syntax

_LITERAL = re.compile(r"\b(\d+)L\b")


@dataclass(frozen=True)
class Affine:
    """`constant + sum(coefficient * variable)`; `terms` holds the coefficients by variable."""

    constant: int
    terms: Mapping[str, int]

    def span(self, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
        """The least and the greatest value within the ranges of the variables; None: one has no range."""
        low = high = self.constant
        for name, factor in self.terms.items():
            if name not in ranges:
                return None
            first, last = ranges[name]
            low += min(factor * first, factor * last)
            high += max(factor * first, factor * last)
        return low, high


def read_affine(text: str) -> Affine | None:
    """A C++ index expression as an affine function; None: it is none."""
    try:
        return _read(syntax.expression(_LITERAL.sub(r"\1", text.strip())))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _read(node: ast.expr) -> Affine | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Affine(node.value, {})
    if isinstance(node, ast.Name):
        return Affine(0, {node.id: 1})
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _read(node.operand)
        return None if inner is None else _scaled(inner, -1)
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _read(node.left), _read(node.right)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Add):
        return _sum(left, right)
    if isinstance(node.op, ast.Sub):
        return _sum(left, _scaled(right, -1))
    if isinstance(node.op, ast.Mult) and not left.terms:
        return _scaled(right, left.constant)
    if isinstance(node.op, ast.Mult) and not right.terms:
        return _scaled(left, right.constant)
    return None


def _scaled(value: Affine, factor: int) -> Affine:
    return Affine(value.constant * factor, {name: item * factor for name, item in value.terms.items()})


def _sum(a: Affine, b: Affine) -> Affine:
    terms = dict(a.terms)
    for name, factor in b.terms.items():
        terms[name] = terms.get(name, 0) + factor
    return Affine(a.constant + b.constant, {name: factor for name, factor in terms.items() if factor})
