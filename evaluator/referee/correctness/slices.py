"""Slices of an output that are wrong altogether although the output as a whole is right.

The rule in `accuracy` measures errors by the largest element of the whole output, so rows that are small beside that
element could hold anything. This module checks slices one by one: the slices with one index fixed in one dimension, and
the rows along the last dimension. An error counts only if no rounding explains it, and only if the oracle shows how
exact the reference is there:

- Without an oracle, or in float64 (where the oracle is the same arithmetic), a slice of cancelled values cannot be
  told from a slice of small values, unless the rule for the whole output finds the error anyway. Such outputs are left
  out. The outputs of an op that narrows on the way are left out, too: its oracle narrows alike and shows no error.
- If the reference itself is grossly wrong somewhere (a choice between near ties that rounding decides), another slice
  of the candidate may be as wrong.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..protocol.traits import EPSILON
from .error_norms import Own
from .tolerances import REAL

# A slice is wrong if all of these hold:
LEAST = 16  # so many elements are wrong: with fewer, the reference may be exact by luck
SHARE = 0.1  # the error exceeds this share of the slice's L2 norm
OWN_FACTOR = 100.0  # the error exceeds this multiple of the reference's own error in the slice
ULPS = 32.0  # the error exceeds so many roundings of the type, which matters for bfloat16 alone
NEGLIGIBLE = 2.0**-40  # share of the largest element: the oracle's own rounding leaves less of a sum that cancels

_MOST_SHARE = 0.5  # upper limit of the share: zeros are wrong in any type
_WRONG_ELEMENTS = 0.25  # share of the nonzero elements that must be wrong: one pole or flipped choice is not enough
_GROSS = (1024.0, 0.1)  # own errors of so many roundings, or this share of the largest element, are not rounding
_BLOCK = 1 << 16
_SAMPLE = 1 << 14  # elements of a timed call's output that are checked


@dataclass(frozen=True)
class Slice:
    """A wrong slice. `error`, `allowed`, `size` (values) and `own` (the reference's error) are root mean squares."""

    place: str
    error: float
    allowed: float
    size: float
    own: float


_Sums = list[tuple[int | None, torch.Tensor]]  # by dimension (None: rows): quantities x slices


def judged(value: torch.Tensor, oracle: torch.Tensor, narrowest: str | None) -> bool:
    """Whether slices of an output are judged.

    They are if the oracle's type, and `narrowest` (the coarsest type that the op narrows to), are finer than the
    output's.
    """
    epsilon = EPSILON[_real(value)]
    return max(EPSILON[_real(oracle)], EPSILON[narrowest or "float64"]) < epsilon


def flushed(dtype: torch.dtype) -> float:
    """An error that counts for nothing, because zero is accepted for a subnormal number.

    There is none in float16, whose small numbers are mostly subnormal.
    """
    return 0.0 if dtype == torch.float16 else 4.0 * torch.finfo(dtype).smallest_normal


def worst(
    candidate: torch.Tensor, reference: torch.Tensor, oracle: torch.Tensor, own: Own, slack: float = 1.0
) -> Slice | None:
    """The wrong slice with the largest `error / allowed`; None without one. Non-finite elements are left out."""
    share = _share(reference, slack)
    if not _suspicious(candidate, oracle, own.scale, share):
        return None
    kind, epsilon = torch.finfo(reference.dtype), EPSILON[_real(reference)]
    tiny = flushed(reference.dtype) or kind.smallest_normal * 2.0**-5
    gross = own.max_error if own.max_error > min(_GROSS[0] * epsilon, _GROSS[1]) * own.scale else 0.0
    found: Slice | None = None
    shape = _squeezed(reference)
    for dim, sums in _sums(_measure(share), candidate, reference, oracle):
        if dim is None and found is not None:
            break  # a larger slice is wrong already, so single rows say no more
        error, size, own_error = sums[0].sqrt(), sums[1].sqrt(), sums[2].sqrt()
        wrong, nonzero, usable = sums[3], sums[4], sums[5]
        root = usable.sqrt()
        allowed = torch.maximum(share * size, OWN_FACTOR * own_error).maximum(root * max(tiny, gross))
        counts = (error > allowed) & (size > NEGLIGIBLE * own.scale * root)
        counts &= (wrong >= LEAST) & (wrong >= _WRONG_ELEMENTS * nonzero)
        if bool(counts.any()):
            index = int(torch.where(counts, error / allowed, 0.0).argmax())
            scale = 1.0 / float(root[index])
            numbers = (float(values[index]) * scale for values in (error, allowed, size, own_error))
            new = Slice(_place(dim, index, reference.shape, shape), *numbers)
            if found is None or new.error / new.allowed > found.error / found.allowed:
                found = new
    return found


def doubtful(candidate: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether slices of a timed call's output lie so far from the reference's that the oracle must decide.

    Of a large output only `_SAMPLE` elements are checked, on a random grid that a candidate cannot predict.
    """
    candidate, reference = _grid(candidate, reference)
    if torch.equal(candidate, reference):
        return False
    finite = reference.abs().nan_to_num(0.0, 0.0, 0.0)
    return reference.numel() > 0 and _suspicious(candidate, reference, float(finite.max()), _share(reference, 1.0))


def _grid(*tensors: torch.Tensor) -> list[torch.Tensor]:
    sizes = list(tensors[0].shape)
    steps = [1] * len(sizes)
    while math.prod(sizes) > _SAMPLE:
        dim = max(range(len(sizes)), key=sizes.__getitem__)
        steps[dim] *= 2
        sizes[dim] = tensors[0].shape[dim] // steps[dim]
    where = tuple(slice(random.randrange(step), None, step) for step in steps)  # noqa: S311 - ops cannot predict it
    return [tensor[where] for tensor in tensors]


def _real(value: torch.Tensor) -> str:
    dtype = str(value.dtype).removeprefix("torch.")
    return REAL.get(dtype, dtype)


def _share(value: torch.Tensor, slack: float) -> float:
    return max(SHARE, min(_MOST_SHARE, ULPS * EPSILON[_real(value)] * slack))


def _suspicious(candidate: torch.Tensor, truth: torch.Tensor, scale: float, share: float) -> bool:
    """Whether any slice has `|error|² > share² * |values|²`. This needs two sums a slice only."""

    def measure(c: torch.Tensor, t: torch.Tensor) -> list[torch.Tensor]:
        return [_square(c - t), _square(t)]

    least = LEAST * min(NEGLIGIBLE * scale, 1e150) ** 2  # a float64 mask's smallest number has no square
    return any(
        bool(((error > share**2 * size) & (size > least)).any())
        for _, (error, size) in _sums(measure, candidate, truth)
    )


def _square(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value).square().sum(-1) if value.is_complex() else value.square()


def _measure(share: float) -> Callable[..., list[torch.Tensor]]:
    def measure(c: torch.Tensor, r: torch.Tensor, o: torch.Tensor) -> list[torch.Tensor]:
        squares = [_square(c - o), _square(o), _square(r - o)]
        usable = torch.isfinite(squares[0]) & torch.isfinite(squares[1]) & torch.isfinite(squares[2])
        error, size, own = (torch.where(usable, square, 0.0) for square in squares)
        counts = (error > torch.maximum(share**2 * size, OWN_FACTOR**2 * own), size > 0.0, usable)
        return [error, size, own, *(part.double() for part in counts)]

    return measure


def _squeezed(value: torch.Tensor) -> list[int]:
    """The dimensions of a size above one."""
    return [dim for dim, size in enumerate(value.shape) if size > 1]


def _place(dim: int | None, index: int, shape: torch.Size, dims: list[int]) -> str:
    if dim is not None:
        return f"slice {index} of dimension {dims[dim]}"
    where = torch.unravel_index(torch.tensor(index), shape[: dims[-1]])
    return f"row [{', '.join(str(int(place)) for place in where)}]"


def _sums(measure: Callable[..., list[torch.Tensor]], *tensors: torch.Tensor) -> _Sums:
    """What is measured of each element, summed over each slice of at least `LEAST` elements.

    The output is walked as a matrix of its rows along the last dimension, block by block, so that what is measured in
    float64 takes little memory. Slices of all other dimensions are made of whole rows.
    """
    parts = [tensor.squeeze() for tensor in tensors]
    shape, elements = parts[0].shape, parts[0].numel()
    if len(shape) < 2 or elements < 2 * LEAST:
        return []
    matrices = [part.reshape(-1, shape[-1]) for part in parts]
    height, width = matrices[0].shape
    columns_at_once = min(width, _BLOCK)
    rows_at_once = max(1, _BLOCK // columns_at_once)
    rows = columns = torch.empty(0)
    for top in range(0, height, rows_at_once):
        for left in range(0, width, columns_at_once):
            where = (slice(top, top + rows_at_once), slice(left, left + columns_at_once))
            each = measure(*(_double(matrix[where]) for matrix in matrices))
            of_rows = torch.stack([part.sum(1) for part in each])
            if not math.isfinite(float(of_rows.sum())):
                usable = torch.stack(each).isfinite().all(0)
                each = [torch.where(usable, part, 0.0) for part in each]
                of_rows = torch.stack([part.sum(1) for part in each])
            if not rows.numel():
                rows, columns = of_rows.new_zeros(len(each), height), of_rows.new_zeros(len(each), width)
            rows[:, where[0]] += of_rows
            for column_sums, part in zip(columns, each, strict=True):
                column_sums[where[1]] += part.sum(0)
    last = len(shape) - 1
    lead = rows.view(-1, *shape[:-1])
    found: _Sums = []
    for dim, size in enumerate(shape):
        if elements // size >= LEAST:
            others = [other + 1 for other in range(last) if other != dim]
            found.append((dim, columns if dim == last else lead.sum(others) if others else rows))
    if last > 1 and width >= LEAST:
        found.append((None, rows))
    return found


def _double(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128) if value.is_complex() else value.double()
