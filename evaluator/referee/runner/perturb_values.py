"""The changes that the input families make to one tensor."""

import math
from collections.abc import Sequence

import torch

# By type: the integer type of the same width, the mantissa bits that bfloat16 (float32 for float64) drops, and the
# value that these bits are set to. Rounding to bfloat16, TF32 and float16 then always goes towards zero, so that in a
# long sum the errors of a narrower type add up instead of averaging out. The same happens, far less, to a float32 sum
# with one accumulator.
_LOW_BITS = {
    torch.float32: (torch.int32, 0xFFFF, 0x6FFF),
    torch.float64: (torch.int64, (1 << 29) - 1, (1 << 28) - 1),
}

# A large integer is made by adding `k * first` with `1 <= k < second`. A quarter of the type's range stays free.
HIGH_BITS = {
    torch.int64: (1 << 33, 1 << 7),
    torch.int32: (1 << 17, 1 << 12),
    torch.int16: (1 << 9, 1 << 4),
    torch.int8: (1 << 4, 1 << 2),
    torch.uint8: (1 << 4, 1 << 3),
}

_SHARE = 0.125  # of the elements that are changed in a tensor whose elements are all equal


def ascends(value: torch.Tensor) -> bool:
    """Whether a tensor's rows are in ascending order: boundaries or offsets, which are meaningless in another order.

    Several rows of two numbers do not count, because they may be in order by chance, nor do rows of one number.
    """
    size = value.shape[-1] if value.dim() > 0 else 0
    if value.dtype == torch.bool or value.is_complex() or value.numel() == 0 or size < (2 if value.dim() == 1 else 3):
        return False
    first = value[(0,) * (value.dim() - 1)]
    for rows in (first, value):  # the first row alone nearly always shows that rows are not in order
        if not bool((rows[..., 1:] >= rows[..., :-1]).all()):
            return False
    return bool((value[..., -1] > value[..., 0]).any())


def in_order(value: torch.Tensor) -> torch.Tensor:
    """The tensor with its rows sorted in ascending order."""
    return value.sort(dim=-1).values


def shuffled(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Put whole slices along one random dimension into another order: each value stays one that the generator gives.

    So an index stays in range, a mask's row keeps its number of holes, a distribution sums to one, and boundaries stay
    in order. Dimensions along which another order changes nothing are passed over.
    """
    last = value.dim() - 1
    dims = [dim for dim, size in enumerate(value.shape) if size > 1 and not (dim == last and ascends(value))]
    for number in torch.randperm(len(dims), generator=generator).tolist():
        dim = dims[number]
        order = torch.randperm(value.shape[dim], generator=generator)
        if torch.equal(order, torch.arange(order.numel())):
            order = order.flip(0)
        found = value.index_select(dim, order)
        if not torch.equal(found, value):
            return found
    return value


def varied(value: torch.Tensor, positive: bool, generator: torch.Generator) -> torch.Tensor:
    """Vary a tensor that a generator makes the same each time: one number everywhere, or integers in ascending order.

    A number stays between its value and 0 or 1, so that a length fits its row, and an index most likely fits its table.
    """
    if value.is_complex() or value.numel() == 0:
        return value
    first = value[(0,) * value.dim()]
    if bool((value == first).all()):
        return _uneven(value, first.item(), positive, generator)
    if not value.is_floating_point() and ascends(value):
        return _other_steps(value, generator)
    return value


def _uneven(value: torch.Tensor, number: float, positive: bool, generator: torch.Generator) -> torch.Tensor:
    """Put other numbers into a tensor whose elements all equal `number`.

    An integer above 1 may be a length, so each element becomes a random integer from 1 to it. Otherwise an eighth of
    the elements is replaced.
    """
    exact = not value.is_floating_point()
    if exact and number > 1 and value.dim() > 0:
        top = min(int(number), torch.iinfo(torch.int64).max - 1)
        found = torch.randint(1, top + 1, value.shape, generator=generator)
        place = int(torch.randint(value.numel(), (1,), generator=generator))
        found.view(-1)[place] = torch.randint(1, top, (1,), generator=generator)  # at least one element differs
        return found.to(value.dtype)
    if value.numel() == 1:
        return value
    if number == 0 or (number == 1 and not positive):
        other = 1.0 - number
    elif not exact and math.isfinite(number):
        other = number / 2
    else:
        return value
    chosen = torch.rand(value.shape, generator=generator) < _SHARE
    chosen.view(-1)[torch.randint(value.numel(), (1,), generator=generator)] = True
    return torch.where(chosen, torch.full((), other, dtype=value.dtype), value)


def _other_steps(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Other integers in ascending order between the same ends; all are different if the range has room for that."""
    wide, inner = value.to(torch.int64), value.shape[-1] - 2
    first, last = wide[..., :1], wide[..., -1:]
    room = last - first - 1 - inner
    for _ in range(8):  # for three small numbers the draw may give the same ones again
        share = in_order(torch.rand((*value.shape[:-1], inner), dtype=torch.float64, generator=generator))
        different = first + 1 + (share * (room + 1)).to(torch.int64) + torch.arange(inner)
        repeated = first + (share * (last - first + 1)).to(torch.int64)
        found = wide.clone()
        found[..., 1:-1] = torch.where(room > 0, different, repeated).clamp(first, last)
        if not torch.equal(found, wide):
            break
    return found.to(value.dtype)


def half_negative(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Negate a random half of the elements. Negating all would not change the result of an even function."""
    return torch.where(torch.rand(value.shape, generator=generator) < 0.5, -value, value)


def with_high_bits(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Add random bits above those that a type of half the width holds. Signs stay, because the values may be counts."""
    step, most = HIGH_BITS[value.dtype]
    added = torch.randint(1, most, value.shape, generator=generator) * step
    wide, kind = value.to(torch.int64), torch.iinfo(value.dtype)
    return torch.where(wide < 0, wide - added, wide + added).clamp_(kind.min, kind.max).to(value.dtype)


def tied(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Round to a grid of a few values, whose sums are exact, with many ties and zeros, and add a few tiny numbers.

    The tiny numbers are subnormal only in float16, because flushing subnormals of the wider types to zero is accepted.
    """
    signed = bool((value < 0).any())
    largest = float(value.abs().nan_to_num(0.0, 0.0, 0.0).max())
    value = value.clone(memory_format=torch.preserve_format)
    if largest > 0.0:
        step = 2.0 ** math.floor(math.log2(largest / 4))
        value = value.div_(step).round_().mul_(step)
    kind = torch.finfo(value.dtype)
    tiny = float(kind.smallest_normal) * (2.0**-10 if value.dtype == torch.float16 else 1.0)
    return _scattered(value, (0.0, tiny, -tiny, -0.0) if signed else (0.0, tiny), generator)


def with_large_ends(value: torch.Tensor) -> torch.Tensor:
    """Make the last elements along each dimension large, so that a sum that leaves them out is clearly wrong.

    The factors of the dimensions multiply, so that the last elements stand out in sums over any dimension.
    """
    factor = torch.ones(value.shape, dtype=value.dtype)
    for dim, size in enumerate(value.shape):
        if size > 1:
            factor.select(dim, -1).mul_(2.0**2 if value.dtype == torch.float16 else 2.0**10)
    return value * factor


def with_low_bits(value: torch.Tensor) -> torch.Tensor:
    """Set the low bits, so that no narrower type holds the numbers.

    Numbers that a narrower type holds (0, 1, small integers) stay, because they may be masks.
    """
    if value.dtype not in _LOW_BITS:
        return value
    integer, mask, pattern = _LOW_BITS[value.dtype]
    bits = value.contiguous().view(integer)
    changed = ((bits & ~mask) | pattern).view(value.dtype)
    return torch.where(((bits & mask) != 0) & torch.isfinite(value), changed, value)


def with_non_finite(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Put NaN into one half and infinities into the other, so that one does not hide the other where both would meet.

    A tensor of boundaries gets no NaN, because a NaN has no place in their order.
    """
    ordered = ascends(value)
    flat = value.clone(memory_format=torch.contiguous_format).view(-1)
    half = flat.numel() // 2
    halves = [flat[:half], flat[half:]]
    if half > 0 and bool(torch.randint(2, (1,), generator=generator)):
        halves.reverse()
    if not ordered:
        _scattered(halves[1], (math.nan,), generator)
    if half > 0:
        _scattered(halves[0], (math.inf, -math.inf), generator)
    return flat.view(value.shape)


def _scattered(value: torch.Tensor, numbers: Sequence[float], generator: torch.Generator) -> torch.Tensor:
    flat = value.contiguous().view(-1)  # the memory of `value` if it is contiguous
    for number in numbers:
        flat[torch.randint(value.numel(), (2,), generator=generator)] = number
    return flat.view(value.shape)
