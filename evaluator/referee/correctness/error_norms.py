"""The largest error and the root mean square error of an output, computed in float64, block by block.

A block stays in the cache. Float64 copies of whole outputs took ten times as long. As few operations as can be go over
each block: what only an error or a value that is not finite asks for is computed where there is one.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

_BLOCK = 1 << 16
_ROUNDINGS = 8.0  # the error, in roundings of the type, that a candidate may have where the reference overflows


@dataclass(frozen=True)
class Own:
    """The reference's own error against the oracle, and the scale of the output, over the elements finite in both."""

    max_error: float = 0.0
    rms_error: float = 0.0
    scale: float = 0.0  # largest magnitude
    rms: float = 0.0
    finite: float = 1.0  # share of the elements that are finite in both

    @property
    def distance(self) -> float:
        """The error as a share of the output: `rms_error / rms`."""
        if self.rms_error == 0.0:
            return 0.0
        return self.rms_error / self.rms if self.rms > 0.0 else math.inf


@dataclass(frozen=True)
class Errors:
    """A candidate's errors against the oracle, and the element with the largest one (its number when flattened)."""

    max_error: float = 0.0
    rms_error: float = 0.0
    worst: int = 0
    found: float = 0.0
    expected: float = 0.0


@dataclass(frozen=True)
class NotFinite:
    """The first element that is NaN or infinite where the reference's is not, or the other way round."""

    element: int
    found: float
    expected: float


def own_error(reference: torch.Tensor, oracle: torch.Tensor | None) -> Own:
    """The error of the reference against the oracle; no error if there is no oracle."""
    max_error, squares, scale, scale_squares, count = 0.0, 0.0, 0.0, 0.0, 0
    for _, (r, o) in _blocks(reference, reference if oracle is None else oracle):
        o = o.double()
        error = r - o
        largest = _largest_magnitude(error)
        if not math.isfinite(largest):
            usable = torch.isfinite(r) & torch.isfinite(o)
            error, o = error[usable], o[usable]
            if error.numel() == 0:
                continue
            largest = _largest_magnitude(error)
        max_error = max(max_error, largest)
        scale = max(scale, _largest_magnitude(o))
        squares += _sum_of_squares(error)
        scale_squares += _sum_of_squares(o)
        count += error.numel()
    finite = count / max(1, reference.numel() * (2 if reference.is_complex() else 1))
    count = max(1, count)
    return Own(max_error, math.sqrt(squares / count), scale, math.sqrt(scale_squares / count), finite)


def errors(
    candidate: torch.Tensor, reference: torch.Tensor, oracle: torch.Tensor | None, *, nan_for_inf: bool = False
) -> Errors | NotFinite:
    """Measure the candidate's errors.

    Args:
        candidate: the candidate's output.
        reference: the reference's output. NaN and infinities are compared with it.
        oracle: the float64 output that finite values are compared with; without one, the reference.
        nan_for_inf: whether a NaN may stand for an infinity and the other way round.
    """
    best = Errors(max_error=-1.0)
    squares, count = 0.0, 0
    bound, epsilon = torch.finfo(reference.dtype).max, torch.finfo(reference.dtype).eps
    for start, (c, r, o) in _blocks(candidate, reference, reference if oracle is None else oracle):
        o = o.double()
        error = c - o
        largest = _largest_magnitude(error)
        if not math.isfinite(largest) or not _all_finite(r):
            c, r = c.double(), r.double()
            differs = _first_not_finite(c, r, o, bound, nan_for_inf)
            if differs is not None:
                return NotFinite(start + differs, float(c[differs]), float(r[differs]))
            usable = torch.isfinite(c) & torch.isfinite(o)
            # The scale of the output leaves out elements that have overflown in the reference. Their allowance is
            # _ROUNDINGS * epsilon * |o| instead.
            error = error.abs_()
            error = torch.where(torch.isfinite(r), error, (error - _ROUNDINGS * epsilon * o.abs()).clamp_min_(0.0))
            error = torch.where(usable, error, 0.0)
            largest = _largest_magnitude(error)
            count += int(usable.sum())
        else:
            count += error.numel()
        if largest > best.max_error:
            where = int(error.abs().argmax())
            best = Errors(largest, 0.0, start + where, float(c[where]), float(o[where]))
        squares += _sum_of_squares(error)
    rms = math.sqrt(squares / max(1, count))
    return Errors(max(0.0, best.max_error), rms, best.worst, best.found, best.expected)


def distance(left: torch.Tensor, right: torch.Tensor) -> tuple[float, float] | None:
    """The largest difference and the root mean square of all, in the tensors' own type; None if one is not finite."""
    max_error, squares = 0.0, 0.0
    for _, (one, other) in _blocks(left, right):
        difference = one - other
        largest = _largest_magnitude(difference)
        if not math.isfinite(largest):
            return None
        max_error = max(max_error, largest)
        squares += _sum_of_squares(difference)
    return max_error, math.sqrt(squares / max(1, left.numel()))


def _largest_magnitude(values: torch.Tensor) -> float:
    """The largest magnitude; NaN if there is a NaN. 16 times as fast as the infinity norm."""
    low, high = (float(end) for end in torch.aminmax(values))
    return max(-low, high) if low == low else math.nan


def _sum_of_squares(values: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=_wide(values))) ** 2


def _wide(values: torch.Tensor) -> torch.dtype | None:
    """The type to add halves in; None for others."""
    return torch.float32 if values.element_size() == 2 else None


def _all_finite(values: torch.Tensor) -> bool:
    """Whether all values are certainly finite, by their sum. A sum that overflows says no, too."""
    return math.isfinite(float(values.sum(dtype=_wide(values))))


def _first_not_finite(c: torch.Tensor, r: torch.Tensor, o: torch.Tensor, bound: float, nan_for_inf: bool) -> int | None:
    """The first element whose NaN or infinity differs between the candidate and the reference; None without one.

    An element does not count if the reference overflows there (or makes NaN of the overflow) although the oracle's
    value fits into the type. A candidate that keeps intermediate results in a wider type is right there.
    """
    differs = torch.isfinite(c) != torch.isfinite(r)
    if not nan_for_inf:
        differs |= torch.isnan(c) != torch.isnan(r)
    differs |= torch.isinf(c) & torch.isinf(r) & (c != r)
    differs &= torch.isfinite(r) | ~(o.abs() <= bound)
    return int(differs.int().argmax()) if bool(differs.any()) else None


def _blocks(*tensors: torch.Tensor) -> Iterator[tuple[int, list[torch.Tensor]]]:
    """The same block of each tensor, flattened, with the number of its first element; complex numbers as two."""
    flat = [(torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), _BLOCK):
        yield start, [part[start : start + _BLOCK] for part in flat]
