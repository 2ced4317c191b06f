"""Comparison of an output with the float64 oracle, relative to the reference's own error.

For each floating-point output of n elements, with candidate c, eager reference r, oracle o and S = max|o| over finite
elements:

    max|c - o| <= 8 * max|r - o| + floor * S
    rms(c - o) <= 4 * rms(r - o) + floor * max(1/2, 1/sqrt(n)) * rms(o)

The first terms let a candidate sum in another order than the reference. The floors let a candidate be a little worse
where the reference happens to be exact. A floor scales with the output, so zeros never pass for a softmax. A floor lies
far below the rounding of the next smaller type (bfloat16 4e-3, TF32 5e-4, float16 5e-4), so none of these types passes
for float32. Either limit is at least `slices.flushed`. `tolerances` holds the floors and their reasons. `slices` also
checks slices that are small beside S, one by one.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..protocol.tensors import TensorRow, Tree
from . import slices
from .error_norms import NotFinite, Own, distance, errors, own_error
from .layout import badly_laid_out
from .tolerances import USUAL, Tolerances

MAX_FACTOR = 8.0
RMS_FACTOR = 4.0
KERNELBENCH = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}  # atol = rtol; 1e-4 for any other type


@dataclass(frozen=True)
class Wrong:
    """Why an output is not accepted: the verdict's code, and a line that says where it is wrong and by how much."""

    code: str  # values, shape, dtype, count, nan, layout, device
    message: str


@dataclass(frozen=True)
class Comparison:
    """The result of comparing one output: the error found, the error allowed, and what is wrong, if anything."""

    max_error: float
    allowed_error: float
    wrong: Wrong | None = None

    @property
    def severity(self) -> float:
        """`max_error / allowed_error`. A value above 1 is wrong; infinity stands for an output of the wrong form."""
        if self.wrong is not None and self.wrong.code != "values":
            return math.inf
        return (
            self.max_error / self.allowed_error
            if self.allowed_error > 0
            else (0.0 if self.max_error == 0 else math.inf)
        )


@dataclass(frozen=True)
class Allowance:
    """How far a timed call's output may lie from the reference's output on the same inputs."""

    max_error: float
    rms_error: float
    may_differ: float = 0.0  # share of the elements of an integer output that may differ by one
    by_slices: bool = False  # whether the output's slices are judged, too


def flatten(tree: Tree) -> dict[str, TensorRow | bool | int | float | str | None]:
    """The leaves of a tree by path, such as `[0]` or `['loss']`. A list and a tuple give the same paths."""
    return dict(_leaves(tree.spec, tree.tensors, ""))


def _leaves(spec: Any, rows: tuple[TensorRow, ...], path: str) -> Iterator[tuple[str, Any]]:
    ((kind, body),) = spec.items()
    if kind == "tensor":
        yield path, rows[body]
    elif kind in ("list", "tuple"):
        for index, item in enumerate(body):
            yield from _leaves(item, rows, f"{path}[{index}]")
    elif kind == "dict":
        for key, item in body:
            yield from _leaves(item, rows, f"{path}[{key!r}]")
    else:
        yield path, body


def compare_form(expected: Tree, got: Tree) -> Wrong | None:
    """The first difference in number, nesting, shape, dtype, device or layout of the outputs; None without one."""
    want, have = flatten(expected), flatten(got)
    if set(want) != set(have):
        return Wrong("count", f"the reference returns {_names(want)}, the candidate {_names(have)}")
    for path, row in want.items():
        other = have[path]
        name = f"output{path}"
        if not isinstance(row, TensorRow) or not isinstance(other, TensorRow):
            if isinstance(row, TensorRow) != isinstance(other, TensorRow) or type(row) is not type(other):
                return Wrong("dtype", f"{name}: expected {_kind(row)}, got {_kind(other)}")
            continue
        for code, wanted, found in (
            ("device", row.device, other.device),
            ("layout", row.layout, other.layout),
            ("dtype", row.dtype, other.dtype),
            ("shape", list(row.shape), list(other.shape)),
        ):
            if wanted != found:
                return Wrong(code, f"{name}: expected {code} {wanted}, got {found}")
        if reason := badly_laid_out(row, other):
            return Wrong("layout", f"{name}: {reason}")
    return None


def _names(leaves: dict[str, Any]) -> str:
    return (
        f"{len(leaves)} output{'s' if len(leaves) != 1 else ''} ({', '.join(f'output{path}' for path in leaves)[:200]})"
    )


def _kind(leaf: Any) -> str:
    return f"a {leaf.dtype} tensor" if isinstance(leaf, TensorRow) else type(leaf).__name__


def naming(path: str) -> str:
    """The name of a compared value in messages: `output` and the path, or the path itself if it begins with a blank."""
    return path[1:] if path.startswith(" ") else f"output{path}"


def compare(
    path: str,
    candidate: torch.Tensor,
    reference: torch.Tensor,
    oracle: torch.Tensor | None,
    tolerances: Tolerances = USUAL,
    own: Own | None = None,
    *,
    slack: float = 1.0,
    nan_for_inf: bool = False,
) -> Comparison:
    """Compare one output with the oracle.

    Args:
        path: the path of the output, for messages.
        candidate: the candidate's output.
        reference: the reference's output, of the same shape.
        oracle: the float64 output, of the same shape. Without one the reference takes its place.
        tolerances: the floors of the task.
        own: the reference's own error, if it has been measured already.
        slack: the factor by which the floor is widened.
        nan_for_inf: whether a NaN may stand for an infinity and the other way round. This is for inputs that hold
            infinities: whether 0 * Inf comes up on the way depends on how a formula is written.
    """
    if not is_rounded(candidate):
        return _compare_exactly(path, candidate, reference, oracle, tolerances.may_differ(_name(candidate)))
    if candidate.numel() == 0:
        return Comparison(0.0, 0.0)
    own = own or own_error(reference, oracle)
    found = errors(candidate, reference, oracle, nan_for_inf=nan_for_inf)
    parts = 2 if candidate.is_complex() else 1
    if isinstance(found, NotFinite):
        message = (
            f"{naming(path)}: {_element(found.element // parts, candidate)} is {found.found:.7g}, the reference has "
            f"{found.expected:.7g}"
        )
        return Comparison(math.inf, 0.0, Wrong("nan", message))
    floor = slack * tolerances.floor(_name(candidate))
    flushed = slices.flushed(candidate.dtype)
    allowed = max(MAX_FACTOR * own.max_error + floor * own.scale, flushed)
    rms_allowed = max(RMS_FACTOR * own.rms_error + floor * _rms_share(candidate) * own.rms, flushed)
    if found.max_error <= allowed and found.rms_error <= rms_allowed:
        if oracle is not None and found.max_error > 0.0 and _by_slices(candidate, oracle, tolerances):
            bad = slices.worst(candidate, reference, oracle, own, slack)
            if bad is not None:
                return _wrong_slice(path, bad)
        return Comparison(found.max_error, allowed)
    return Comparison(
        found.max_error,
        allowed if found.max_error > allowed else found.max_error * rms_allowed / max(found.rms_error, 1e-300),
        Wrong(
            "values",
            f"{naming(path)}: {_element(found.worst // parts, candidate)} is {found.found:.7g}, expected "
            f"{found.expected:.7g}; largest error {found.max_error:.3g} (allowed {allowed:.3g}), root mean square "
            f"{found.rms_error:.3g} (allowed {rms_allowed:.3g})",
        ),
    )


def _element(number: int, of: torch.Tensor) -> str:
    """An element for people: its number, and its place where there are several dimensions."""
    if of.dim() < 2:
        return f"element {number}"
    rest, place = number, list[int]()
    for size in reversed(of.shape):
        place.insert(0, rest % size)
        rest //= size
    return f"element {number} (at {place})"


def _rms_share(value: torch.Tensor) -> float:
    """The share of the floor that the root mean square gets: of a few errors it says no more than the largest does."""
    return max(0.5, 1 / math.sqrt(max(1, value.numel())))


def _by_slices(value: torch.Tensor, oracle: torch.Tensor, tolerances: Tolerances) -> bool:
    """Whether slices are judged: not if the task declares a tolerance, which is a share of the output's scale."""
    declared = tolerances.judged_as(_name(value)) in tolerances.declared
    return not declared and slices.judged(value, oracle, tolerances.traits.narrowest)


def _wrong_slice(path: str, bad: slices.Slice) -> Comparison:
    text = (
        f"{naming(path)}: {bad.place} is wrong altogether: its values have root mean square {bad.size:.3g}, its errors "
        f"{bad.error:.3g} (allowed {bad.allowed:.3g}), the reference's {bad.own:.3g}"
    )
    return Comparison(bad.error, bad.allowed, Wrong("values", text))


def is_rounded(value: torch.Tensor) -> bool:
    """Whether the values are of a type whose arithmetic rounds: floating-point or complex."""
    return value.is_floating_point() or value.is_complex()


def kernelbench(candidate: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether KernelBench's rule accepts the output. For comparison only: zeros pass for small outputs."""
    tolerance = KERNELBENCH.get(_name(reference), 1e-4)
    return torch.allclose(candidate, reference, atol=tolerance, rtol=tolerance)


def allowance(
    reference: torch.Tensor, oracle: torch.Tensor | None, tolerances: Tolerances = USUAL, own: Own | None = None
) -> Allowance:
    """What `compare` allows, plus the reference's own error.

    A timed call is compared with the reference, which differs from the oracle by the reference's own error.
    """
    if not is_rounded(reference):
        return Allowance(0.0, 0.0, tolerances.may_differ(_name(reference)))
    floor = tolerances.floor(_name(reference))
    own = own or own_error(reference, oracle)
    flushed = slices.flushed(reference.dtype)
    return Allowance(
        max((MAX_FACTOR + 1) * own.max_error + floor * own.scale, flushed),
        max((RMS_FACTOR + 1) * own.rms_error + floor * _rms_share(reference) * own.rms, flushed),
        by_slices=oracle is not None and _by_slices(reference, oracle, tolerances),
    )


def within(candidate: torch.Tensor, reference: torch.Tensor, allowed: Allowance, slack: float = 2.0) -> bool:
    """Whether a timed call's output lies within the allowance around the reference's output on the same inputs.

    `slack` covers that other random inputs have a somewhat larger error than those the allowance was measured on.
    """
    if not is_rounded(candidate):
        return bool(torch.equal(candidate, reference)) or _few_differ(candidate, reference, allowed.may_differ)
    if candidate.numel() == 0:
        return True
    if candidate.is_complex():
        candidate, reference = torch.view_as_real(candidate), torch.view_as_real(reference)
    found = distance(candidate, reference)
    if found is None:
        finite = torch.isfinite(reference)
        same = torch.where(torch.isinf(reference), candidate == reference, torch.isnan(candidate))
        if not bool(torch.where(finite, torch.isfinite(candidate), same).all()):
            return False
        if not bool(finite.any()):
            return True
        found = distance(candidate[finite], reference[finite])
    return found is not None and found[0] <= slack * allowed.max_error and found[1] <= slack * allowed.rms_error


def slices_doubtful(candidate: torch.Tensor, reference: torch.Tensor, allowed: Allowance) -> bool:
    """Whether to run the oracle for the slices of a timed call's output whose whole is right."""
    return allowed.by_slices and slices.doubtful(candidate, reference)


def _compare_exactly(
    path: str, candidate: torch.Tensor, reference: torch.Tensor, oracle: torch.Tensor | None, may_differ: float
) -> Comparison:
    different = candidate != reference
    if bool(different.any()) and oracle is not None and oracle.dtype == reference.dtype:
        # Where rounding alone decides (an argmax between two nearly equal values), either answer is right.
        different &= candidate != oracle
    different = different.flatten()
    count = int(different.sum())
    if count == 0 or _few_differ(candidate, reference, may_differ):
        return Comparison(float(count), max(float(count), may_differ * different.numel()))
    first = int(different.int().argmax())
    message = (
        f"{naming(path)}: {count} of {different.numel()} elements differ; {_element(first, candidate)} is "
        f"{candidate.flatten()[first].item()}, expected {reference.flatten()[first].item()}"
    )
    return Comparison(float(count), may_differ * different.numel(), Wrong("values", message))


def _few_differ(candidate: torch.Tensor, reference: torch.Tensor, may_differ: float) -> bool:
    if may_differ == 0.0:
        return False
    difference = (candidate.to(torch.int64) - reference.to(torch.int64)).abs()
    return int(difference.max()) <= 1 and float(difference.double().mean()) <= may_differ


def _name(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
