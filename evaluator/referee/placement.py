"""Where outputs may lie: laid out as the reference's are, and not in the memory of the inputs unless its own are.

A view takes no time where the reference makes a copy, and whoever goes on with the result pays for it or is surprised.
"""

import os
from collections.abc import Sequence

from .tree import TensorRow

_PAGE = os.sysconf("SC_PAGE_SIZE")
_INBOX = b"/memfd:inbox"  # as `inbox` names it
_PRESENT_BIT, _SHARED_BIT = 0x80, 0x20  # in the highest byte of a pagemap entry; the latter: a file's, or shared


def badly_laid_out(want: TensorRow, got: TensorRow) -> str:
    """What is wrong with the strides of an output; empty if nothing is. Both have the same shape."""
    wanted, found = _steps(want), _steps(got)
    if wanted == found:
        return ""
    if wanted == _steps_if_contiguous(want):
        return f"strides {list(got.stride)}, where the reference's output is contiguous"
    if _is_dense(found):
        return ""
    return f"strides {list(got.stride)} leave gaps or overlap, and are not the reference's {list(want.stride)}"


def in_inbox(pid: int, rows: Sequence[TensorRow]) -> list[bool]:
    """Of each tensor of a stopped runner, whether it lies in an inbox: through any mapping that there is of one.

    Raises:
        OSError: the runner is gone.
    """
    suspects = [row.span_bytes > 0 and not _all_private(pid, row) for row in rows]
    if not any(suspects):
        return suspects
    mapped = _mappings(pid)
    return [
        suspect and any(row.place < end and start < row.place + row.span_bytes for start, end in mapped)
        for suspect, row in zip(suspects, rows, strict=True)
    ]


def _steps(row: TensorRow) -> list[tuple[int, int]]:
    """Size and stride of each dimension that has more than one element; none if there are no elements at all."""
    if 0 in row.shape:
        return []
    return [(size, step) for size, step in zip(row.shape, row.stride, strict=True) if size > 1]


def _steps_if_contiguous(row: TensorRow) -> list[tuple[int, int]]:
    steps, step = [], 1
    for size, _ in reversed(_steps(row)):
        steps.append((size, step))
        step *= size
    return steps[::-1]


def _is_dense(steps: list[tuple[int, int]]) -> bool:
    """Whether the elements fill their span without gap or overlap, in whatever order of dimensions."""
    expected = 1
    for size, step in sorted(steps, key=lambda pair: pair[1]):
        if step != expected:
            return False
        expected *= size
    return True


def _all_private(pid: int, row: TensorRow) -> bool:
    """Whether every page of a tensor is in memory and the process's own; far faster than reading all its mappings."""
    first, last = row.place // _PAGE, (row.place + row.span_bytes - 1) // _PAGE
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:  # noqa: PTH123 - hot path
        file.seek(first * 8)
        entries = file.read((last - first + 1) * 8)
    kinds = set(entries[7::8])
    return len(entries) == (last - first + 1) * 8 and all(
        kind & _PRESENT_BIT and not kind & _SHARED_BIT for kind in kinds
    )


def _mappings(pid: int) -> list[tuple[int, int]]:
    found = []
    with open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123 - hot path
        for line in file:
            if _INBOX in line:
                start, _, end = line.split(None, 1)[0].partition(b"-")
                found.append((int(start, 16), int(end, 16)))
    return found
