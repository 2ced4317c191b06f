"""A task's category and dtype. They are read from the header of its module docstring, or else guessed from its names.

The convention is two optional lines in the module docstring, readable without running anything::

    \"\"\"RMSNorm with a learned scale, then GELU.

    Category: normalization
    Dtype: float32
    \"\"\"
"""

import ast
import difflib
import re
from collections.abc import Iterable, Sequence

from tasks.text import task_error

CATEGORIES = (
    "activation",
    "arch",
    "attention",
    "broadcast",
    "convolution",
    "fuse",
    "index",
    "loss",
    "math",
    "matmul",
    "normalization",
    "optimizer",
    "pooling",
    "reduce",
    "resize",
    "scan",
    "other",
)
DTYPES = ("float32", "float64", "float16", "bfloat16")

_HEADER = re.compile(r"^[ \t]*(category|dtype)[ \t]*:[ \t]*(.*?)[ \t]*$", re.IGNORECASE)


def check_category(category: str, where: str, *, line: int | None = None) -> str:
    """Return the category if it is one of `CATEGORIES`; else raise TaskError."""
    return _one_of(category, CATEGORIES, "category", where, line)


def check_dtype(dtype: str, where: str, *, line: int | None = None) -> str:
    """Return the dtype if it is one of `DTYPES`; else raise TaskError."""
    return _one_of(dtype, DTYPES, "dtype", where, line)


def read_header(tree: ast.Module, where: str) -> dict[str, str]:
    """Read the `Category:` and `Dtype:` lines of the module docstring; a key that is absent is left out.

    Raises:
        TaskError: a value that is none of `CATEGORIES` or `DTYPES`, or a key given twice.
    """
    first = tree.body[0] if tree.body else None
    if not (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    ):
        return {}
    found: dict[str, str] = {}
    for offset, text in enumerate(first.value.value.split("\n")):
        match = _HEADER.match(text)
        if match is None:
            continue
        key, value, line = match[1].lower(), match[2].lower(), first.lineno + offset
        if key in found:
            raise task_error(where, f"gives its {key} twice", "keep one of them", line=line)
        check = check_category if key == "category" else check_dtype
        found[key] = check(value, where, line=line)
    return found


def guess_dtype(tree: ast.Module) -> str:
    """Guess the dtype from the first `torch.<dtype>` in get_inputs or among the constants; else float32."""
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            continue
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name != "get_inputs":
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute):
                name = {"half": "float16", "double": "float64"}.get(node.attr, node.attr)
                if name in DTYPES:
                    return name
    return "float32"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the one of `known` that `name` was probably meant to be, ignoring case; None if none is close."""
    # Hostile files have thousands of names or very long ones; the similarity of two strings costs their product.
    folded = {other.casefold(): other for other in known if len(other) <= 2 * len(name) + 8}
    close = difflib.get_close_matches(name.casefold(), list(folded)[:2000], n=1, cutoff=0.75)
    return folded[close[0]] if close else None


def _one_of(value: str, allowed: Sequence[str], what: str, where: str, line: int | None) -> str:
    if value in allowed:
        return value
    close = nearest(value[:64], allowed)
    remedy = f"did you mean '{close}'?" if close else f"use one of: {', '.join(allowed)}"
    raise task_error(where, f"unknown {what} '{value[:64]}'", remedy, line=line)
