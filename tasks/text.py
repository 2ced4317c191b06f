"""Text from outside: reading and decoding of task files, and replacement of characters that the store cannot hold."""

import io
import os
import stat
import tokenize
from pathlib import Path

from tasks.task import TaskError


def clean_text(text: str) -> str:
    """`text` with U+FFFD for each NUL, and three U+FFFD for each lone surrogate.

    Text comes from hostile code and hostile models. PostgreSQL rejects a row that holds a NUL, and UTF-8 cannot encode
    a lone surrogate. Cleaning twice gives the same text, so the stored text equals the text that was used.
    """
    return text.replace("\x00", "\ufffd").encode("utf-8", "surrogatepass").decode("utf-8", "replace")


MAX_SOURCE_BYTES = 256 * 1024
"""An op is a page or two of Python; more is a mistake or an attack."""


def task_error(where: str, what: str, remedy: str, *, line: int | None = None) -> TaskError:
    """Build the error `where:line: what; remedy` as one printable line, whatever a hostile file put into its parts."""
    place = where if line is None else f"{where}:{line}"
    text = f"{place}: {what}; {remedy}"
    return TaskError("".join(char if char.isprintable() else ascii(char)[1:-1] for char in text))


def read_source(path: Path, *, what: str = ".py file", at_most: int = MAX_SOURCE_BYTES) -> bytes:
    """Read a task file, at most up to the bound in bytes, and only if it is a regular file. Errors ask for a `what`.

    Raises:
        TaskError: the file is missing, a directory, a device or pipe, unreadable, or too large.
    """
    where = str(path)
    try:
        # Without O_NONBLOCK, opening a pipe without a writer would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise task_error(where, "no such file", "check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise task_error(where, f"cannot be read ({reason})", "check the path and its permissions") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise task_error(where, "is a directory", f"name one {what} in it")
        if not stat.S_ISREG(mode):
            raise task_error(where, "is not a regular file", f"name a {what}")
        source = _read_bounded(descriptor, at_most)
    except OSError as error:
        raise task_error(where, f"cannot be read ({error.strerror})", "check the file and its permissions") from None
    finally:
        os.close(descriptor)
    if len(source) > at_most:
        raise _too_large(where, at_most)
    return source


def decode_source(source: str | bytes, where: str) -> str:
    """Return the text of a Python file, unchanged but for a leading byte order mark.

    Raises:
        TaskError: too large, empty, not UTF-8, declared to be in another encoding, or holding a null byte.
    """
    if len(source) > MAX_SOURCE_BYTES:
        raise _too_large(where)
    try:
        data = source.encode() if isinstance(source, str) else source
    except UnicodeEncodeError as error:
        line = error.object.count("\n", 0, error.start) + 1
        raise task_error(
            where, "holds a lone surrogate, which UTF-8 cannot express", "save it as UTF-8", line=line
        ) from None
    if len(data) > MAX_SOURCE_BYTES:
        raise _too_large(where)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"is not UTF-8 (byte 0x{data[error.start]:02x})"
        raise task_error(where, what, "save it as UTF-8", line=line) from None
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise task_error(where, "holds a null byte, so it is not Python text", "save it as plain UTF-8", line=line)
    _refuse_other_encoding(data, where)
    text = text.removeprefix("\N{BYTE ORDER MARK}")
    if not text.strip():
        raise task_error(where, "is empty", "write an op with a Model class or a plain function, and get_inputs()")
    return text


def _read_bounded(descriptor: int, at_most: int) -> bytes:
    parts: list[bytes] = []
    while sum(map(len, parts)) <= at_most and (part := os.read(descriptor, at_most + 1)):
        parts.append(part)
    return b"".join(parts)


def _refuse_other_encoding(data: bytes, where: str) -> None:
    # What is validated as UTF-8 here would be run as something else there.
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError:
        encoding = "an unknown one"
    if encoding not in ("utf-8", "utf-8-sig"):
        raise task_error(
            where, f"declares another encoding ({encoding})", "save it as UTF-8 and drop the declaration", line=1
        )


def _too_large(where: str, at_most: int = MAX_SOURCE_BYTES) -> TaskError:
    return task_error(where, f"is over {at_most // 1024} KiB", "cut it down to the one op to optimize")
