"""Where outputs may lie: laid out as the reference's are, and not in the memory of the inputs unless its own are.

A view takes no time where the reference makes a copy, and whoever goes on with the result pays for it or is surprised.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..protocol.tensors import TensorRow

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


@dataclass(frozen=True)
class Places:
    """Where tensors lie: of each, whether in an inbox; and whether one page lies at several places of them."""

    in_inbox: list[bool]
    folded: bool = False


def places(pid: int, rows: Sequence[TensorRow]) -> Places:
    """Where tensors of a stopped runner lie, through any mapping that there is.

    Raises:
        OSError: the runner is gone.
    """
    suspects = [row.span_bytes > 0 and not _all_private(pid, row) for row in rows]
    if not any(suspects):
        return Places(suspects)
    mapped = _mappings(pid)
    suspected = [row for suspect, row in zip(suspects, rows, strict=True) if suspect]
    inside = [suspect and _lies_in_inbox(row, mapped) for suspect, row in zip(suspects, rows, strict=True)]
    return Places(inside, _is_folded(suspected, mapped))


def overlap(some: Sequence[TensorRow], others: Sequence[TensorRow]) -> bool:
    """Whether the span of any of these begins or ends within that of one of the others."""
    spans = sorted(
        (row.place, row.place + row.span_bytes, side) for side, rows in enumerate((some, others)) for row in rows
    )
    reached = [-1, -1]
    for start, end, side in spans:
        if start < end:
            if start < reached[1 - side]:
                return True
            reached[side] = max(reached[side], end)
    return False


def kept_apart(want: Mapping[str, TensorRow], got: Mapping[str, TensorRow]) -> tuple[str, str] | None:
    """The paths of two outputs that share memory, where the reference has memory of its own for each; None if none do.

    Of those with gaps nothing is said: one may lie in those of the other.
    """
    groups, _ = _groups(want)
    found, neighbours = _groups(got)
    for path, other in neighbours.items():
        dense = all(_is_dense(_steps(rows[name])) for rows in (want, got) for name in (path, other))
        if dense and found[path] == found[other] and groups.get(path) != groups.get(other):
            return other, path
    return None


def _groups(rows: Mapping[str, TensorRow]) -> tuple[dict[str, int], dict[str, str]]:
    """The number of each tensor's group, of those whose spans hang together; and whose span each one begins in."""
    numbers: dict[str, int] = {}
    neighbours: dict[str, str] = {}
    end, furthest = -1, ""
    for path, row in sorted(rows.items(), key=lambda item: item[1].place):
        if not row.span_bytes:
            continue
        if row.place < end:
            numbers[path], neighbours[path] = numbers[furthest], furthest
        else:
            numbers[path] = len(numbers)
        if row.place + row.span_bytes > end:
            end, furthest = row.place + row.span_bytes, path
    return numbers, neighbours


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


@dataclass(frozen=True)
class _Mapping:
    """Addresses, and what of which file lies there."""

    start: int
    end: int
    file: tuple[bytes, bytes]
    offset: int
    is_inbox: bool


def _lies_in_inbox(row: TensorRow, mapped: Sequence[_Mapping]) -> bool:
    return any(
        mapping.is_inbox and row.place < mapping.end and mapping.start < row.place + row.span_bytes
        for mapping in mapped
    )


def _is_folded(rows: Sequence[TensorRow], mapped: Sequence[_Mapping]) -> bool:
    """Whether some byte of a file lies at two addresses within these tensors."""
    parts: dict[tuple[bytes, bytes], list[tuple[int, int, int]]] = defaultdict(list)
    for row in rows:
        for mapping in mapped:
            start, end = max(row.place, mapping.start), min(row.place + row.span_bytes, mapping.end)
            if start < end:
                shift = mapping.offset - mapping.start
                parts[mapping.file].append((start + shift, end + shift, shift))
    for of_file in parts.values():
        reached, by = -1, 0
        for start, end, shift in sorted(of_file):
            if start < reached and shift != by:
                return True
            if end > reached:
                reached, by = end, shift
    return False


def _mappings(pid: int) -> list[_Mapping]:
    """What is mapped of files, and of shared memory, which the kernel keeps as one."""
    found = []
    with open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123 - hot path
        for line in file:
            span, _, offset, device, inode, *_ = line.split(None, 5)
            if inode != b"0":
                start, _, end = span.partition(b"-")
                key = (device, inode)
                found.append(_Mapping(int(start, 16), int(end, 16), key, int(offset, 16), _INBOX in line))
    return found
