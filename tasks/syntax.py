"""Parses hostile Python source into a syntax tree, from any thread. The source is never executed."""

import ast
import threading
import warnings

_TRIES = 20
# Two threads that make trees at once add up their depths in CPython up to 3.12 (gh-106905), and the filters of
# warnings are the whole process's.
_one_at_a_time = threading.Lock()


def parse(source: str) -> ast.Module:
    """The syntax tree of a source. Warnings about its literals are suppressed.

    Raises:
        SyntaxError: it is not Python.
        ValueError: it holds what Python's parser refuses, such as an integer beyond the interpreter's limit.
        RecursionError, MemoryError: it is nested too deeply.
    """
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(_TRIES - 1):
            try:
                return ast.parse(source)
            except SystemError:
                continue  # a library parses something on another thread
        return ast.parse(source)


def expression(text: str) -> ast.expr:
    """The syntax tree of one expression.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as `parse`; SyntaxError also if it is anything else.
    """
    match parse(text.strip()).body:
        case [ast.Expr(value)]:
            return value
    raise SyntaxError("this is not one expression")
