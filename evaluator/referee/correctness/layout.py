"""The rule for the layout of outputs: the reference's strides, and no shared memory unless the reference shares it.

A view takes no time where the reference makes a copy, but the next operation on the view takes longer.
"""

from collections.abc import Mapping, Sequence

from ..protocol.tensors import TensorRow


def badly_laid_out(want: TensorRow, got: TensorRow) -> str:
    """What is wrong with the strides of the output `got`; empty if nothing is. Both rows have the same shape."""
    wanted, found = _steps(want), _steps(got)
    if wanted == found:
        return ""
    if wanted == _steps_if_contiguous(want):
        return f"strides {list(got.stride)}, where the reference's output is contiguous"
    if _is_dense(found):
        return ""
    return f"strides {list(got.stride)} leave gaps or overlap, and are not the reference's {list(want.stride)}"


def overlap(some: Sequence[TensorRow], others: Sequence[TensorRow]) -> bool:
    """Whether the span of any tensor of `some` meets the span of any tensor of `others`."""
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
    """The paths of two outputs that share memory although the reference's do not; None if there are no such two.

    Outputs with gaps are left out: one may lie in the gaps of another.
    """
    groups, _ = _groups(want)
    found, neighbours = _groups(got)
    for path, other in neighbours.items():
        dense = all(_is_dense(_steps(rows[name])) for rows in (want, got) for name in (path, other))
        if dense and found[path] == found[other] and groups.get(path) != groups.get(other):
            return other, path
    return None


def _groups(rows: Mapping[str, TensorRow]) -> tuple[dict[str, int], dict[str, str]]:
    """Groups of tensors whose spans meet.

    Returns:
        The number of each tensor's group by path; and, for each tensor that begins within the span of another, the path
        of that other.
    """
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
    """Size and stride of each dimension that has more than one element; no entry if there are no elements at all."""
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
    """Whether the elements fill their span without gap or overlap, in any order of dimensions."""
    expected = 1
    for size, step in sorted(steps, key=lambda pair: pair[1]):
        if step != expected:
            return False
        expected *= size
    return True
