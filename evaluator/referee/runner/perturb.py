"""Input families: the task's own inputs, and changes to them on which a candidate with a shortcut fails.

This runs in the reference's runner. The referee decides which families are skipped. Most families change floating-point
tensors, one changes integers, and three change values of any type; values in lists, tuples and dicts are changed, too.
Rows in ascending order stay in ascending order. Only one family gives negative numbers to a tensor that holds none,
because such a tensor may be a variance or a probability; the reference's own outputs show whether it takes them. Other
limits on an op's inputs are declared in the task's DOMAIN.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..protocol.input_families import (
    ANY_TYPE,
    COLUMNS,
    COUNT_GROUPS,
    DOMAINS,
    DOWN,
    ENDS,
    FAR,
    FLIPPED,
    GENERATED,
    GROUP,
    INTEGERS,
    LOW_BITS,
    NEGATIVE,
    NON_FINITE,
    OUTLIER,
    ROWS,
    SHUFFLED,
    SPARSE,
    TIES,
    UP,
    VARIED,
    is_mask,
    may_turn_negative,
)
from ..protocol.smaller_shapes import Smaller
from . import perturb_values


def make(
    module: Any,
    family: str,
    seed: int,
    domains: Sequence[str],
    *,
    some: bool = False,
    change_seed: int | None = None,
    smaller: Smaller | None = None,
    own_group: int | None = None,
) -> tuple[Any, bool]:
    """Make the inputs of a family with the generators of the task's module.

    Args:
        module: the task's module.
        family: the input family, or `COUNT_GROUPS`.
        seed: the seed of the generator.
        domains: the domains that the task declares.
        some: whether only a random choice of the inputs is changed.
        change_seed: the seed of the changes to integers, so that these are the same in different sets; by default
            `seed`, which is that of all other changes.
        smaller: makes the generated inputs smaller, before the family changes them.
        own_group: the shape group whose inputs take the place of those of `get_inputs()`; these take its place among
            the groups then.

    Returns:
        The inputs, or for `COUNT_GROUPS` the number of the task's shape groups; and whether the family has changed
        anything.
    """
    torch.manual_seed(seed)
    if family == COUNT_GROUPS:
        return len(module.get_input_groups()), True
    if family.startswith(GROUP):
        group = int(family.removeprefix(GROUP))
        return _made_smaller(_of_group(module, None if group == own_group else group), smaller), True
    values = _made_smaller(_of_group(module, own_group), smaller)
    return _applied(family, values, seed, seed if change_seed is None else change_seed, domains, some)


def _of_group(module: Any, group: int | None) -> list[Any]:
    """The inputs of a shape group; of None those of `get_inputs()`."""
    if group is None:
        return list(module.get_inputs())
    groups = module.get_input_groups()  # a list, or what makes a group when it is asked for
    if group >= len(groups):
        raise IndexError(f"get_input_groups() returns {len(groups)} lists of inputs: there is no shape group {group}")
    return list(groups[group])


def _made_smaller(values: list[Any], rule: Smaller | None) -> list[Any]:
    if rule is None:
        return values
    leaves = [leaf for value in values for leaf in _leaves(value)]
    tensors = iter(rule.of([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]))
    after = iter([next(tensors) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])
    return [_like(value, after) for value in values]


def apply(family: str, values: list[Any], seed: int, domains: Sequence[str] = (), *, some: bool = False) -> list[Any]:
    """Change inputs as a family says.

    Args:
        family: the input family.
        values: the inputs.
        seed: makes random positions repeatable.
        domains: no domain, one for all inputs, or one for each. An input that the family would move out of its domain
            stays as it is.
        some: whether others stay as they are, too, at random. Otherwise one input would reveal how another was changed.

    Raises:
        ValueError: there is no such family.
    """
    return _applied(family, values, seed, seed, domains, some)[0]


def _applied(
    family: str, values: list[Any], seed: int, integer_seed: int, domains: Sequence[str], some: bool
) -> tuple[list[Any], bool]:
    """The same as `apply`, and whether anything was changed."""
    if family.startswith(GENERATED):
        return values, True
    each = list(domains) * len(values) if len(domains) == 1 else list(domains) + ["any"] * len(values)
    leaves = [(leaf, domain) for value, domain in zip(values, each, strict=False) for leaf in _leaves(value)]
    changed: dict[int, Any] = {}
    for index, (leaf, domain) in enumerate(leaves):
        # Each leaf has a generator of its own, so that its random numbers do not depend on another leaf's content.
        found = _changed(family, leaf, domain, _generator(integer_seed if _is_integer(leaf) else seed, index))
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


def _is_integer(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in perturb_values.HIGH_BITS


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list | tuple) else [value]


def _like(value: Any, leaves: Iterator[Any]) -> Any:
    """A value of the same nesting with other leaves."""
    if isinstance(value, dict):
        return {key: _like(item, leaves) for key, item in value.items()}
    if isinstance(value, list):
        return [_like(item, leaves) for item in value]
    return tuple(_like(item, leaves) for item in value) if isinstance(value, tuple) else next(leaves)


def _changed(family: str, value: Any, domain: str, generator: torch.Generator) -> Any:
    """The changed leaf; None if the family does not change it, or would move it out of its domain."""
    if family in DOMAINS[domain]:
        return None
    if family == VARIED and isinstance(value, float):
        return value / 2 if math.isfinite(value) and value != 0.0 else None
    if not isinstance(value, torch.Tensor) or not _is_meant(family, value):
        return None
    found = _change(family, value, domain, generator)
    if family not in ANY_TYPE and perturb_values.ascends(value):
        found = perturb_values.in_order(found)
    if torch.equal(found, value):  # NaN is unequal to itself, so a tensor with NaN counts as changed
        return None
    return found if found.stride() == value.stride() else torch.empty_like(value).copy_(found)


def _is_meant(family: str, value: torch.Tensor) -> bool:
    if value.numel() == 0:
        return False
    if family == INTEGERS:
        return value.dtype in perturb_values.HIGH_BITS and not is_mask(value)
    return family in ANY_TYPE or value.is_floating_point()


def _change(family: str, value: torch.Tensor, domain: str, generator: torch.Generator) -> torch.Tensor:
    if family == SHUFFLED:
        return perturb_values.shuffled(value, generator)
    if family == VARIED:
        return perturb_values.varied(value, domain == "positive", generator)
    if family == SPARSE:
        return perturb_values.with_a_few_changed(value, domain == "positive", generator)
    if family in (ROWS, COLUMNS):
        dim = 0 if family == ROWS else value.dim() - 1
        return value if is_mask(value) else perturb_values.with_slices_of_one_sign(value, dim, generator)
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
    if family == FAR:
        return value if is_mask(value) else perturb_values.moved(value, generator)
    if family == TIES:
        return perturb_values.tied(value, generator)
    if family == ENDS:
        return perturb_values.with_large_ends(value)
    if family == OUTLIER:
        return value if is_mask(value) else perturb_values.with_an_outlier(value, generator)
    if family == LOW_BITS:
        return perturb_values.with_low_bits(value)
    if family == NON_FINITE:
        return perturb_values.with_non_finite(value, generator)
    raise ValueError(f"family: unknown {family!r}")
