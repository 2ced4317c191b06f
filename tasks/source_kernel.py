"""A kernel for the same op in another language, which a task brings: the constant SOURCE_KERNEL at the top level.

Models that write candidates are shown it, so that they translate what is known to be fast. The host reads it by `ast`
only. Beside a `Model` it is never built or run, and it changes nothing about how candidates are judged.

Without a `Model` the kernel is the reference. Then `source` is Python that defines `ModelNew`, as a candidate for its
platform does, and what a sandbox computes with it is what candidates must compute (docs/accuracy.md)::

    SOURCE_KERNEL = {
        "platform": "cuda",         # the platform whose language it is written in
        "source": "__global__ ...", # the whole kernel, with what launches it if that is known
        "entry": "forward",         # the function that callers call (may be absent)
        "notes": "one warp a row",  # what else is known of it (may be absent)
    }
"""

import ast
import re
from dataclasses import dataclass

from tasks import syntax
from tasks.parse import assigned, literals
from tasks.text import clean_text, task_error

NAME = "SOURCE_KERNEL"
MAX_KERNEL_BYTES = 64 * 1024
MAX_NOTES_CHARS = 2000
KEYS = ("platform", "source", "entry", "notes")
REFERENCE_PLATFORMS = ("cuda",)
"""Platforms whose kernels may be references: a processor runs them."""

_REMEDY = f'write {NAME} = {{"platform": "cuda", "source": "..."}}'
_PLATFORM = re.compile(r"[a-z][a-z0-9]{0,31}")
_ENTRY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")  # what Python's parser counts as one


@dataclass(frozen=True)
class SourceKernel:
    """A kernel in the language of `platform`. `entry` and `notes` are empty where the task does not give them."""

    platform: str
    source: str
    entry: str = ""
    notes: str = ""


def read_source_kernel(tree: ast.Module, where: str) -> SourceKernel | None:
    """Read SOURCE_KERNEL of a module; None: it has none.

    Whether there is a platform of that name is not known here (`service/translation.py`).

    Raises:
        TaskError: it is not a literal dict, a key is unknown or missing, or a value is not allowed.
    """
    given = literals(tree, where, {NAME: _REMEDY})
    if NAME not in given:
        return None
    value, line = given[NAME]
    if not isinstance(value, dict):
        raise task_error(where, f"{NAME} is not a dict", _REMEDY, line=line)
    for key in value:
        if key not in KEYS:
            raise task_error(where, f"{NAME} has the key {str(key)[:64]!r}", f"use {', '.join(KEYS)}", line=line)
    for key in KEYS:
        if key not in value and key in ("platform", "source"):
            raise task_error(where, f"{NAME} has no {key!r}", _REMEDY, line=line)
        if not isinstance(value.get(key, ""), str):
            what = f'{NAME}["{key}"] is of type {type(value[key]).__name__}'
            raise task_error(where, what, "give a string", line=line)
    kernel = SourceKernel(**value)
    check_source_kernel(kernel, where, line)
    return kernel


def source_kernel_of(source: str) -> SourceKernel | None:
    """The kernel that a valid task's source brings; None: it brings none.

    Raises:
        TaskError: as `read_source_kernel`.
    """
    return read_source_kernel(syntax.parse(source), "<task>") if NAME in source else None


def reference_kernel_of(source: str) -> SourceKernel | None:
    """The kernel that is the reference of a valid task, because it has no `Model`; None: its `Model` is.

    Raises:
        TaskError: as `read_source_kernel`.
    """
    if NAME not in source:
        return None
    tree = syntax.parse(source)
    has_model = any(isinstance(node, ast.ClassDef) and node.name == "Model" for node in tree.body)
    return None if has_model else read_source_kernel(tree, "<task>")


def without_source_kernel(source: str) -> str:
    """A valid task's source with `...` in place of the kernel, for readers who are shown the kernel elsewhere."""
    if NAME not in source:
        return source
    lines = [line.encode() for line in _LINE.findall(source)]
    for statement in reversed(syntax.parse(source).body):
        name, value = assigned(statement)
        if name == NAME and value is not None and value.end_lineno is not None and value.end_col_offset is not None:
            first, last = value.lineno - 1, value.end_lineno - 1
            head, tail = lines[first][: value.col_offset], lines[last][value.end_col_offset :]
            lines[first : last + 1] = [head + b"..." + tail]
    return b"".join(lines).decode()


def constant_text(kernel: SourceKernel) -> str:
    """The statement that gives a task this kernel: in lines as they are, where Python can quote them so."""
    values = {key: text for key in KEYS if (text := getattr(kernel, key))}
    shown = {key: repr(text) for key, text in values.items()} | {"source": f'r"""{kernel.source}"""'}
    plain = "{\n" + "".join(f'    "{key}": {text},\n' for key, text in shown.items()) + "}"
    try:
        exact = ast.literal_eval(syntax.expression(plain)) == values
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        exact = False
    return f"{NAME} = {plain if exact else repr(values)}\n"


def check_source_kernel(kernel: SourceKernel, where: str, line: int | None = None) -> None:
    """Check the values.

    Raises:
        TaskError: one is not allowed.
    """

    def refuse(key: str, what: str, remedy: str) -> None:
        raise task_error(where, f'{NAME}["{key}"] {what}', remedy, line=line)

    if _PLATFORM.fullmatch(kernel.platform) is None:
        refuse("platform", f"is {kernel.platform[:64]!r}", "name a platform of `kernelwright platforms`")
    for key, text in (("source", kernel.source), ("notes", kernel.notes)):
        if clean_text(text) != text:
            refuse(key, "holds a null byte or a lone surrogate", "give plain text")
    size = len(kernel.source.encode())
    if size > MAX_KERNEL_BYTES:
        remedy = "cut it down to this op's kernel and what launches it"
        refuse("source", f"has {size:,} bytes, over {MAX_KERNEL_BYTES // 1024} KiB", remedy)
    if not kernel.source.strip():
        refuse("source", "is empty", "give the whole kernel as text")
    if kernel.entry and (_ENTRY.fullmatch(kernel.entry) is None or kernel.entry not in kernel.source):
        refuse("entry", f"is {kernel.entry[:64]!r}", "name a function that the source defines")
    if len(kernel.notes) > MAX_NOTES_CHARS:
        refuse("notes", f"has {len(kernel.notes):,} characters, over {MAX_NOTES_CHARS}", "shorten it")
