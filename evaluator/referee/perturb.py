"""Input families: the task's own inputs, and changes to them that shortcuts do not survive.

Runs in the reference runner; what is skipped is decided by the referee. Floating-point tensors are changed, in one
family integers, and in one whatever there is. Only one gives negative numbers to a tensor that holds none (it may be a
variance or a probability): the reference's own outputs show whether it takes them. What else the op's inputs may not
be, the task declares as its DOMAIN.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

GENERATED, OTHER_SEED = "as generated", "as generated, other seed"
FLIPPED = "sign flipped"
SHUFFLED = "slices in another order"
NEGATIVE = "negative where the generator gives none"
UP, DOWN = "scaled up", "scaled down"
TIES = "zeros, ties and tiny values"
ENDS = "large last elements"
LOW_BITS = "low bits that narrower types lose"
NON_FINITE = "NaN and Inf"
INTEGERS = "large integers"
FAMILIES = (
    GENERATED, OTHER_SEED, SHUFFLED, FLIPPED, UP, DOWN, TIES, ENDS, LOW_BITS, NON_FINITE, NEGATIVE, INTEGERS,
)  # fmt: skip
GROUP = "shape group "  # followed by the group's number in the task's get_input_groups()
COUNT_GROUPS = "number of shape groups"  # not a family: the answer is a number

# A task's DOMAIN, and the families that leave it.
DOMAINS: dict[str, frozenset[str]] = {
    "any": frozenset(),
    "finite": frozenset({NON_FINITE}),
    "nonnegative": frozenset({FLIPPED, NEGATIVE, NON_FINITE}),
    "positive": frozenset({FLIPPED, NEGATIVE, TIES, NON_FINITE}),
    "unit": frozenset({FLIPPED, NEGATIVE, UP, ENDS, NON_FINITE, INTEGERS}),
    "fixed": frozenset(FAMILIES) - {GENERATED, OTHER_SEED},
}

# Mantissa bits that bfloat16 (float32 for float64) drops, and what they are set to: rounding to bfloat16, to TF32 and
# to float16 then always goes towards zero, so that the errors of a narrower type add up instead of averaging out in a
# long sum. The same happens, far less, to a float32 sum with one accumulator; `LOW_BITS_SLACK` allows for it.
_LOW_BITS = {
    torch.float32: (torch.int32, 0xFFFF, 0x6FFF),
    torch.float64: (torch.int64, (1 << 29) - 1, (1 << 28) - 1),
}
LOW_BITS_SLACK = 8.0

# What `INTEGERS` adds: multiples of the first number, fewer than the second. A quarter of the range stays free.
_HIGH_BITS = {
    torch.int64: (1 << 33, 1 << 7),
    torch.int32: (1 << 17, 1 << 12),
    torch.int16: (1 << 9, 1 << 4),
    torch.int8: (1 << 4, 1 << 2),
    torch.uint8: (1 << 4, 1 << 3),
}


def may_end_a_process(family: str, dtypes: Sequence[str]) -> bool:
    """Whether the inputs hold integers that the family changes: indexes, sizes, offsets among them, perhaps."""
    return family in (INTEGERS, SHUFFLED) and any("int" in dtype for dtype in dtypes)


def slack(family: str) -> float:
    """By how much a family widens the floors."""
    return LOW_BITS_SLACK if family == LOW_BITS else 1.0


def skipped(family: str, domains: Sequence[str], dtypes: Sequence[str]) -> str:
    """Why a family says nothing about a task with these domains and input dtypes; empty if it does say something."""
    if family.startswith((GENERATED, GROUP)):
        return ""
    floats = [dtype for dtype in dtypes if "float" in dtype]
    if family == INTEGERS:
        if not any("int" in dtype for dtype in dtypes):
            return "no integer input"
    elif family == SHUFFLED:
        if not dtypes:
            return "no tensor input"
    elif not floats:
        return "no floating-point input"
    if family == LOW_BITS and not any(dtype in ("float32", "float64") for dtype in floats):
        return "no narrower type"
    if domains and all(family in DOMAINS[domain] for domain in domains):
        return f"leaves the declared domain ({', '.join(dict.fromkeys(domains))})"
    return ""


def make(
    module: Any, family: str, seed: int, domains: Sequence[str], *, some: bool = False, change_seed: int | None = None
) -> Any:
    """The inputs of a family, out of the generators of the task's module, or the number of its shape groups.

    `change_seed`: has them changed alike each time, whatever they are.
    """
    torch.manual_seed(seed)
    if family == COUNT_GROUPS:
        return len(module.get_input_groups())
    if family.startswith(GROUP):
        return list(module.get_input_groups()[int(family.removeprefix(GROUP))])
    change_seed = seed if change_seed is None else change_seed
    return apply(family, list(module.get_inputs()), change_seed, domains, some=some)


def apply(family: str, values: list[Any], seed: int, domains: Sequence[str] = (), *, some: bool = False) -> list[Any]:
    """The inputs changed as the family says. `seed` makes random positions repeatable.

    `domains` is empty, one domain for all inputs, or one for each; an input that the family would take out of its
    domain stays as it is. With `some` so do others, at random: else one input's look would tell of the others'.

    Raises:
        ValueError: no such family.
    """
    generator = torch.Generator().manual_seed(seed ^ 0x5EED)
    each = list(domains) * len(values) if len(domains) == 1 else list(domains) + ["any"] * len(values)
    meant = [
        index
        for index, (value, domain) in enumerate(zip(values, each, strict=False))
        if _is_meant(family, value) and family not in DOMAINS[domain]
    ]
    if some and len(meant) > 1:
        chosen = torch.rand(len(meant), generator=generator) < 0.5
        chosen[torch.randint(len(meant), (1,), generator=generator)] = True
        meant = [index for index, is_chosen in zip(meant, chosen.tolist(), strict=True) if is_chosen]
    return [_change(family, value, generator) if index in meant else value for index, value in enumerate(values)]


def may_turn_negative(value: torch.Tensor) -> bool:
    """Whether `NEGATIVE` changes a tensor: one of floating-point numbers, none of them negative, and no mask."""
    return value.is_floating_point() and value.numel() > 0 and not bool((value < 0).any()) and not _is_mask(value)


def _is_mask(value: torch.Tensor) -> bool:
    return bool(((value == 0) | (value == 1)).all())


def _is_sorted(value: torch.Tensor) -> bool:
    """Whether it is a row of numbers in ascending order: boundaries or offsets, which mean nothing in another one."""
    return value.dim() == 1 and value.dtype != torch.bool and bool((value[1:] >= value[:-1]).all())


def _is_meant(family: str, value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.numel() == 0:
        return False
    if family == INTEGERS:
        return value.dtype in _HIGH_BITS and not _is_mask(value)
    if family == SHUFFLED:
        return value.numel() > 1 and not _is_sorted(value)
    return value.is_floating_point()


def _change(family: str, value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if family.startswith(GENERATED):
        return value
    value = value.clone(memory_format=torch.preserve_format)
    if family == SHUFFLED:
        return _shuffled(value, generator)
    signed = bool((value < 0).any())
    if family == FLIPPED:
        return value.neg_() if signed else value
    if family == NEGATIVE:
        return _half_negative(value, generator) if may_turn_negative(value) else value
    if family == INTEGERS:
        return _with_high_bits(value, generator)
    if family == UP:
        return value.mul_(16.0)
    if family == DOWN:
        return value.mul_(2.0**-10)
    if family == TIES:
        return _tied(value, signed, generator)
    if family == ENDS:
        return _with_large_ends(value)
    if family == LOW_BITS:
        return _with_low_bits(value)
    if family == NON_FINITE:
        return _with_non_finite(value, generator)
    raise ValueError(f"family: unknown {family!r}")


def _shuffled(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Whole slices along one dimension in another order: every value stays one that the generator gives.

    So an index stays in range, a mask's row has as many holes, a distribution sums to one. A mask that is the same
    everywhere would not change: an eighth of it does.
    """
    if value.dtype == torch.bool and (bool(value.all()) or not bool(value.any())):
        return value ^ (torch.rand(value.shape, generator=generator) < 0.125)
    dims = [dim for dim, size in enumerate(value.shape) if size > 1]
    dim = dims[int(torch.randint(len(dims), (1,), generator=generator))]
    order = torch.randperm(value.shape[dim], generator=generator)
    return torch.empty_like(value).copy_(value.index_select(dim, order))


def _half_negative(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Half of the elements negated: negating all would leave even functions of them as they are."""
    return torch.where(torch.rand(value.shape, generator=generator) < 0.5, -value, value)


def _with_high_bits(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random bits above those that a type of half the width holds. Signs stay: there may be counts among them."""
    step, most = _HIGH_BITS[value.dtype]
    added = torch.randint(1, most, value.shape, generator=generator) * step
    wide, kind = value.to(torch.int64), torch.iinfo(value.dtype)
    return torch.where(wide < 0, wide - added, wide + added).clamp_(kind.min, kind.max).to(value.dtype)


def _tied(value: torch.Tensor, signed: bool, generator: torch.Generator) -> torch.Tensor:
    """On a grid of a few values, whose sums are exact, with many ties and zeros; and a few of the smallest numbers.

    Subnormal ones only in float16: flushing those of the wider types to zero is accepted.
    """
    largest = float(value.abs().nan_to_num(0.0, 0.0, 0.0).max())
    if largest > 0.0:
        step = 2.0 ** math.floor(math.log2(largest / 4))
        value = value.div_(step).round_().mul_(step)
    kind = torch.finfo(value.dtype)
    tiny = float(kind.smallest_normal) * (2.0**-10 if value.dtype == torch.float16 else 1.0)
    return _scattered(value, (0.0, tiny, -tiny, -0.0) if signed else (0.0, tiny), generator)


def _with_large_ends(value: torch.Tensor) -> torch.Tensor:
    """The last elements along each dimension made large: a sum that leaves them out is wrong beyond doubt.

    The factor multiplies with each dimension, so that they stand out in sums over any of them.
    """
    factor = torch.ones(value.shape, dtype=value.dtype)
    for dim, size in enumerate(value.shape):
        if size > 1:
            factor.select(dim, -1).mul_(2.0**2 if value.dtype == torch.float16 else 2.0**10)
    return value * factor


def _with_low_bits(value: torch.Tensor) -> torch.Tensor:
    """Numbers that no narrower type holds. Those that one does (0, 1, small integers) stay: they may be masks."""
    if value.dtype not in _LOW_BITS:
        return value
    integer, mask, pattern = _LOW_BITS[value.dtype]
    bits = value.contiguous().view(integer)
    changed = ((bits & ~mask) | pattern).view(value.dtype)
    return torch.where(((bits & mask) != 0) & torch.isfinite(value), changed, value)


def _with_non_finite(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """NaN in one half, infinities in the other, so that the one does not hide the other wherever both would meet."""
    flat = value.contiguous().view(-1)
    half = flat.numel() // 2
    halves = [flat[:half], flat[half:]]
    if half > 0 and bool(torch.randint(2, (1,), generator=generator)):
        halves.reverse()
    _scattered(halves[1], (math.nan,), generator)
    if half > 0:
        _scattered(halves[0], (math.inf, -math.inf), generator)
    return flat.view(value.shape)


def _scattered(value: torch.Tensor, numbers: Sequence[float], generator: torch.Generator) -> torch.Tensor:
    flat = value.contiguous().view(-1)  # the same memory, if that is contiguous
    for number in numbers:
        flat[torch.randint(value.numel(), (2,), generator=generator)] = number
    return flat.view(value.shape)
