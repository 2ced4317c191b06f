"""The changes that the input families make to one tensor."""

import math
from collections.abc import Callable, Sequence

import torch

from ..protocol.input_families import is_mask

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
FEW = 128  # one element of so many is changed at most where a few are; one in any case
_TRIES = 64


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
    if _may_be_lengths(value, number):
        top = min(int(number), torch.iinfo(torch.int64).max - 1)
        found = torch.randint(1, top + 1, value.shape, generator=generator)
        place = int(torch.randint(value.numel(), (1,), generator=generator))
        found.view(-1)[place] = torch.randint(1, top, (1,), generator=generator)  # at least one element differs
        return found.to(value.dtype)
    other = _other_number(value, number, positive)
    if value.numel() == 1 or other is None:
        return value
    chosen = torch.rand(value.shape, generator=generator) < _SHARE
    chosen.view(-1)[torch.randint(value.numel(), (1,), generator=generator)] = True
    return torch.where(chosen, torch.full((), other, dtype=value.dtype), value)


def _may_be_lengths(value: torch.Tensor, number: float) -> bool:
    return not value.is_floating_point() and number > 1 and value.dim() > 0


def _other_number(value: torch.Tensor, number: float, positive: bool) -> float | None:
    """What stands in place of a number that a tensor holds everywhere; None if nothing is known to fit."""
    if number == 0 or (number == 1 and not positive):
        return 1.0 - number
    return number / 2 if value.is_floating_point() and math.isfinite(number) else None


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


def with_a_few_changed(value: torch.Tensor, positive: bool, generator: torch.Generator) -> torch.Tensor:
    """Change one element, two slices or less than 1 % of the elements, at places that no sample of them shows.

    Of a mask, a few elements are flipped, and of one number everywhere, a few become another, as `varied` chooses it.
    In ascending rows one element moves between its neighbours. Otherwise two elements or two slices change places, so
    that each value stays one that the generator gives, and an index names no place more often than before.
    """
    if value.numel() < 2:
        return value
    first = value[(0,) * value.dim()]
    if bool((value == first).all()):
        return value if value.is_complex() else _few_uneven(value, first.item(), positive, generator)
    if is_mask(value):
        return _at_few_places(value, lambda old: old == 0, generator)
    if ascends(value):
        return _one_step_moved(value, generator)
    if bool(torch.randint(2, (1,), generator=generator)):
        return _slices_exchanged(value, generator)
    return _elements_exchanged(value, generator)


def _few_uneven(value: torch.Tensor, number: float, positive: bool, generator: torch.Generator) -> torch.Tensor:
    if _may_be_lengths(value, number):
        top = min(int(number), torch.iinfo(torch.int64).max - 1)
        return _at_few_places(value, lambda old: torch.randint(1, top, old.shape, generator=generator), generator)
    other = _other_number(value, number, positive)
    return value if other is None else _at_few_places(value, lambda old: torch.full(old.shape, other), generator)


def _at_few_places(
    value: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor], generator: torch.Generator
) -> torch.Tensor:
    """Change a few elements: any number of them from 1 to the largest, small ones as likely as large ones."""
    flat = value.clone(memory_format=torch.contiguous_format).view(-1)
    most = max(1, flat.numel() // FEW)
    count = int(most ** float(torch.rand((), dtype=torch.float64, generator=generator)))
    places = torch.randint(flat.numel(), (count,), generator=generator).tolist()
    chosen = torch.tensor(sorted(set(places)))
    flat[chosen] = change(flat[chosen]).to(value.dtype)
    return flat.view(value.shape)


def _one_step_moved(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Move one element of ascending rows between its neighbours, strictly between them if there is room."""
    found = value.clone(memory_format=torch.contiguous_format)
    rows = found.view(-1, found.shape[-1])
    movable = (rows[:, 2:] > rows[:, :-2]).nonzero()
    for _ in range(_TRIES if len(movable) else 0):  # a draw may give the old number again
        row, before = movable[int(torch.randint(len(movable), (1,), generator=generator))].tolist()
        low, old, high = (rows[row, before + step].item() for step in range(3))
        share = float(torch.rand((), dtype=torch.float64, generator=generator))
        if isinstance(low, float):
            new = low + share * (high - low)
        elif high - low > 2:
            new = low + 1 + int(share * (high - low - 1))
        else:
            new = (low, high)[share < 0.5]
        rows[row, before + 1] = new
        if low <= rows[row, before + 1] <= high and rows[row, before + 1] != old:
            return found
        rows[row, before + 1] = old
    return value


def _slices_exchanged(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Exchange two slices along a random dimension; two elements if the slices are equal."""
    dims = [dim for dim, size in enumerate(value.shape) if size > 1]
    dim = dims[int(torch.randint(len(dims), (1,), generator=generator))]
    order = torch.arange(value.shape[dim])
    places = torch.randperm(len(order), generator=generator)[:2]
    order[places] = places.flip(0)
    found = value.index_select(dim, order)
    return _elements_exchanged(value, generator) if torch.equal(found, value) else found


def _elements_exchanged(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Exchange two elements that are not equal. The tensor holds various numbers."""
    flat = value.clone(memory_format=torch.contiguous_format).view(-1)
    first = torch.randint(flat.numel(), (1,), generator=generator)
    drawn = torch.randint(flat.numel(), (_TRIES,), generator=generator)
    others = drawn[flat[drawn] != flat[first]]
    if len(others) == 0:
        unequal = (flat != flat[first]).nonzero().view(-1)
        others = unequal[torch.randint(len(unequal), (1,), generator=generator)]
    places = torch.cat([first, others[:1]])
    flat[places] = flat[places.flip(0)]
    return flat.view(value.shape)


def with_slices_of_one_sign(value: torch.Tensor, dim: int, generator: torch.Generator) -> torch.Tensor:
    """Make some slices along a dimension zero, and as many negative throughout if the tensor has negatives.

    An eighth of the slices each, one at least. A sum, maximum or norm over any other dimensions meets them as a whole.
    """
    if value.dim() < 2 or value.shape[dim] < 2:
        return value
    size = value.shape[dim]
    order, count = torch.randperm(size, generator=generator), max(1, int(size * _SHARE))
    negative = order[count : 2 * count] if bool((value < 0).any()) else order[:0]
    found = value.clone(memory_format=torch.preserve_format)
    found.index_fill_(dim, order[:count], 0.0)
    found.index_copy_(dim, negative, -value.index_select(dim, negative).abs())
    return found


def with_an_outlier(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Make one element much larger than all others. It stays within the range of its type.

    It is positive unless no element is. Where an op takes the negative to nothing (GELU), a good approximation of its
    factor is still multiplied by the large number, and no output is as large. And it is not so large that a sum of
    squares with few accumulators would lose the terms that come after it.
    """
    factor = 2.0**2 if value.dtype == torch.float16 else 2.0**7
    largest = float(value.abs().nan_to_num(0.0, 0.0, 0.0).max()) * factor
    if not 0.0 < largest <= torch.finfo(value.dtype).max:
        return value
    flat = value.clone(memory_format=torch.contiguous_format).view(-1)
    place = int(torch.randint(flat.numel(), (1,), generator=generator))
    flat[place] = largest if bool((flat > 0).any()) else -largest
    return flat.view(value.shape)


def moved(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Multiply by 8, then move by 32 times the largest: up in a random half of every dimension's slices, else down.

    So along each dimension the other half of the slices is moved down as a whole. All are moved up if none is negative;
    single numbers stay. Of numbers as torch.randn makes them no exponential is left in float32 where they are moved
    down. Not all of a tensor is, for the reason that `with_an_outlier` has. A mean is 16 to 32 times the deviation in
    such a slice, so that a variance in one pass keeps digits; what has a far larger largest number stays, and so does
    what would leave the range of its type.
    """
    dims = [dim for dim, size in enumerate(value.shape) if size > 1]
    largest = float(value.abs().nan_to_num(0.0, 0.0, 0.0).max())
    usual = float(torch.linalg.vector_norm(value, dtype=torch.float64)) / math.sqrt(value.numel())
    if not dims or not largest <= 8.0 * usual or 40.0 * largest > torch.finfo(value.dtype).max:
        return value
    up = torch.ones(value.shape, dtype=torch.bool)
    for dim in dims if bool((value < 0).any()) else ():
        order = torch.randperm(value.shape[dim], generator=generator)
        up.index_fill_(dim, order[: len(order) // 2], False)
    step = torch.tensor(32.0 * largest, dtype=value.dtype)
    return value * 8.0 + torch.where(up, step, -step)


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

    The factors of the dimensions multiply, so that the last elements stand out in sums over any dimension. The very
    last is larger than all others, and positive for the reason that `with_an_outlier` has.
    """
    factor = torch.ones(value.shape, dtype=value.dtype)
    for dim, size in enumerate(value.shape):
        if size > 1:
            factor.select(dim, -1).mul_(2.0**2 if value.dtype == torch.float16 else 2.0**10)
    found = value * factor
    if bool((value > 0).any()):
        found[(-1,) * value.dim()].abs_()
    return found


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
