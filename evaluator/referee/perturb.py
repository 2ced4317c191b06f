"""Input families: the task's own inputs, and changes to them that shortcuts do not survive.

Runs in the reference runner; what is skipped is decided by the referee. Floating-point tensors are changed, in one
family integers, and in two whatever there is, wherever it lies: in lists, tuples and dicts as well. Rows in ascending
order stay in it. Only one family gives negative numbers to a tensor that holds none (it may be a variance or a
probability): the reference's own outputs show whether it takes them. What else the op's inputs may not be, the task
declares as its DOMAIN.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from . import perturb_values

GENERATED, OTHER_SEED = "as generated", "as generated, other seed"
FLIPPED = "sign flipped"
SHUFFLED = "slices in another order"
VARIED = "what is always the same varied"
NEGATIVE = "negative where the generator gives none"
UP, DOWN = "scaled up", "scaled down"
TIES = "zeros, ties and tiny values"
ENDS = "large last elements"
LOW_BITS = "low bits that narrower types lose"
NON_FINITE = "NaN and Inf"
INTEGERS = "large integers"
FAMILIES = (
    GENERATED, OTHER_SEED, SHUFFLED, VARIED, FLIPPED, UP, DOWN, TIES, ENDS, LOW_BITS, NON_FINITE, NEGATIVE, INTEGERS,
)  # fmt: skip
NAN_REFUSES = frozenset({NEGATIVE, SHUFFLED, VARIED})  # NaN says of these that the reference does not take them
GROUP = "shape group "  # followed by the group's number in the task's get_input_groups()
COUNT_GROUPS = "number of shape groups"  # not a family: the answer is a number

# A task's DOMAIN, and the families that leave it.
DOMAINS: dict[str, frozenset[str]] = {
    "any": frozenset(),
    "finite": frozenset({NON_FINITE}),
    "nonnegative": frozenset({FLIPPED, NEGATIVE, NON_FINITE}),
    "positive": frozenset({FLIPPED, NEGATIVE, TIES, NON_FINITE}),
    "unit": frozenset({FLIPPED, NEGATIVE, UP, ENDS, NON_FINITE, INTEGERS}),
    "bounded": frozenset({INTEGERS}),
    "fixed": frozenset(FAMILIES) - {GENERATED, OTHER_SEED},
}

LOW_BITS_SLACK = 8.0  # the rounding errors of float32 itself do not average out there, either


def may_end_a_process(family: str, dtypes: Sequence[str]) -> bool:
    """Whether the inputs hold integers that the family changes: indexes, sizes, offsets among them, perhaps."""
    return family in (INTEGERS, SHUFFLED, VARIED) and any("int" in dtype for dtype in dtypes)


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
    elif family != VARIED and not floats:
        return "no floating-point input"
    if family == LOW_BITS and not any(dtype in ("float32", "float64") for dtype in floats):
        return "no narrower type"
    if domains and all(family in DOMAINS[domain] for domain in domains):
        return f"leaves the declared domain ({', '.join(dict.fromkeys(domains))})"
    return ""


def make(
    module: Any, family: str, seed: int, domains: Sequence[str], *, some: bool = False, change_seed: int | None = None
) -> tuple[Any, bool]:
    """The inputs of a family, out of the generators of the task's module, or the number of its shape groups.

    And whether the family has changed anything. `change_seed`: has them changed alike each time, whatever they are.
    """
    torch.manual_seed(seed)
    if family == COUNT_GROUPS:
        return len(module.get_input_groups()), True
    if family.startswith(GROUP):
        return list(module.get_input_groups()[int(family.removeprefix(GROUP))]), True
    change_seed = seed if change_seed is None else change_seed
    return _applied(family, list(module.get_inputs()), change_seed, domains, some)


def apply(family: str, values: list[Any], seed: int, domains: Sequence[str] = (), *, some: bool = False) -> list[Any]:
    """The inputs changed as the family says. `seed` makes random positions repeatable.

    `domains` is empty, one domain for all inputs, or one for each; an input that the family would take out of its
    domain stays as it is. With `some` so do others, at random: else one input's look would tell of the others'.

    Raises:
        ValueError: no such family.
    """
    return _applied(family, values, seed, domains, some)[0]


def may_turn_negative(value: torch.Tensor) -> bool:
    """Whether `NEGATIVE` changes a tensor: one of floating-point numbers, none of them negative, and no mask."""
    if not value.is_floating_point() or value.numel() == 0:
        return False
    return not bool((value < 0).any()) and not perturb_values.is_mask(value)


def _applied(family: str, values: list[Any], seed: int, domains: Sequence[str], some: bool) -> tuple[list[Any], bool]:
    """And whether anything was changed."""
    if family.startswith(GENERATED):
        return values, True
    each = list(domains) * len(values) if len(domains) == 1 else list(domains) + ["any"] * len(values)
    leaves = [(leaf, domain) for value, domain in zip(values, each, strict=False) for leaf in _leaves(value)]
    changed: dict[int, Any] = {}
    for index, (leaf, domain) in enumerate(leaves):
        # One generator for each, so that what is drawn for one depends on no other's content.
        found = _changed(family, leaf, domain, _generator(seed, index))
        if found is not None:
            changed[index] = found
    if some and len(changed) > 1:
        generator = _generator(seed, len(leaves))
        chosen = torch.rand(len(changed), generator=generator) < 0.5
        chosen[torch.randint(len(changed), (1,), generator=generator)] = True
        changed = {
            index: changed[index] for index, is_chosen in zip(list(changed), chosen.tolist(), strict=True) if is_chosen
        }
    after = iter([changed.get(index, leaf) for index, (leaf, _) in enumerate(leaves)])
    return [_like(value, after) for value in values], bool(changed)


def _generator(seed: int, index: int) -> torch.Generator:
    return torch.Generator().manual_seed(((seed ^ 0x5EED) + 0x9E3779B9 * index) % (1 << 63))


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list | tuple) else [value]


def _like(value: Any, leaves: Iterator[Any]) -> Any:
    """The same lists, tuples and dicts with other leaves."""
    if isinstance(value, dict):
        return {key: _like(item, leaves) for key, item in value.items()}
    if isinstance(value, list):
        return [_like(item, leaves) for item in value]
    return tuple(_like(item, leaves) for item in value) if isinstance(value, tuple) else next(leaves)


def _changed(family: str, value: Any, domain: str, generator: torch.Generator) -> Any:
    """The leaf as the family has it; None where that is what it was, or would be outside its domain."""
    if family in DOMAINS[domain]:
        return None
    if family == VARIED and isinstance(value, float):
        return value / 2 if math.isfinite(value) and value != 0.0 else None
    if not isinstance(value, torch.Tensor) or not _is_meant(family, value):
        return None
    found = _change(family, value, domain, generator)
    if family not in (SHUFFLED, VARIED) and perturb_values.ascends(value):
        found = perturb_values.in_order(found)
    if torch.equal(found, value):  # never so with NaN among them
        return None
    return found if found.stride() == value.stride() else torch.empty_like(value).copy_(found)


def _is_meant(family: str, value: torch.Tensor) -> bool:
    if value.numel() == 0:
        return False
    if family == INTEGERS:
        return value.dtype in perturb_values.HIGH_BITS and not perturb_values.is_mask(value)
    return family in (SHUFFLED, VARIED) or value.is_floating_point()


def _change(family: str, value: torch.Tensor, domain: str, generator: torch.Generator) -> torch.Tensor:
    if family == SHUFFLED:
        return perturb_values.shuffled(value, generator)
    if family == VARIED:
        return perturb_values.varied(value, domain == "positive", generator)
    if family == FLIPPED:
        return -value if bool((value < 0).any()) else value
    if family == NEGATIVE:
        return perturb_values.half_negative(value, generator) if may_turn_negative(value) else value
    if family == INTEGERS:
        return perturb_values.with_high_bits(value, generator)
    if family == UP:
        return value * 16.0
    if family == DOWN:
        return value * 2.0**-10
    if family == TIES:
        return perturb_values.tied(value, generator)
    if family == ENDS:
        return perturb_values.with_large_ends(value)
    if family == LOW_BITS:
        return perturb_values.with_low_bits(value)
    if family == NON_FINITE:
        return perturb_values.with_non_finite(value, generator)
    raise ValueError(f"family: unknown {family!r}")
