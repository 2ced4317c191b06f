"""Makes results safe to print and store: finite numbers and printable text, whatever a runner has put into them.

The host imports this module, too, because it sanitizes the referee's answer again. So it uses the standard library
only.
"""

import math
import traceback
from pathlib import Path
from typing import Any

_MAX_DEPTH = 64
_INTEGER_BITS = 64


def plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON that is safe to print or store: control characters become spaces, NaN and infinities None.

    Raises:
        ValueError: it is nested too deeply, or holds something that JSON has no form for.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested more than {_MAX_DEPTH} deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, int):
        return value if value.bit_length() < _INTEGER_BITS else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {printable(str(key)): plain(item, depth + 1) for key, item in value.items()}
    raise ValueError(f"a value of type {type(value).__name__}")


def printable(text: str) -> str:
    """The text with a space for every character that is neither printable nor an end of line or a tab."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)


def one_line(text: str, limit: int) -> str:
    """Printable text on one line of at most `limit` characters."""
    kept = " ".join(printable(text[: 4 * limit]).split())
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def fault(error: BaseException) -> str:
    """An error of the referee itself as one line: the error and the place where it was raised, without a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return one_line(f"{type(error).__name__}{where}: {error}", 300)
