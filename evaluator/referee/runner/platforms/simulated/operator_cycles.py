"""What torch's operators take on the array machine, each as a program of its own: eager on platform `simulated`.

The instructions of an operator are found by torch's own decompositions (`torch._decomp`): an operator is carried out on
tensors without elements, and what it consists of is looked up in the machine's tables. So `gelu` takes four
multiplications or additions and an `erf`, as a candidate's program would.
"""

from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from ....protocol import array_machine as machine
from ....protocol import cycles
from ...op_traits import Mode

_INSTRUCTIONS: dict[str, tuple[str, ...]] = {
    "neg": ("negative",),
    "abs": ("absolute",),
    "sub": ("subtract",),
    "rsub": ("subtract",),
    "mul": ("multiply",),
    "div": ("divide",),
    "addcmul": ("multiply_add",),
    "where": ("select",),
    "amax": ("maximum_of",),
    "amin": ("minimum_of",),
    "sum": ("sum",),
    **dict.fromkeys(("lt", "le", "gt", "ge"), ("less",)),
    **dict.fromkeys(("eq", "ne"), ("equal",)),
    **dict.fromkeys(("bitwise_and", "logical_and"), ("minimum",)),
    **dict.fromkeys(("bitwise_or", "logical_or"), ("maximum",)),
    **dict.fromkeys(("bitwise_not", "logical_not"), ("equal",)),
    **dict.fromkeys(("to", "_to_copy", "convert_element_type"), ("convert",)),
}
"""Instructions by operators of torch that have another name."""

_PRIMITIVES: dict[str, tuple[str, ...]] = {
    "prims::expm1": ("exp", "subtract"),
    "prims::log1p": ("add", "log"),
    "prims::pow": ("log", "multiply", "exp"),
    "prims::var": ("sum", "subtract", "multiply", "sum"),  # besides, two divisions for each row
}
"""Instructions of what torch does not decompose any further and the machine has no instruction for."""

_ALLOCATIONS = frozenset(
    ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
)

_FREE = _ALLOCATIONS | frozenset(
    ("alias", "broadcast_in_dim", "copy_", "full", "full_like", "new_full", "ones_like", "scalar_tensor", "zeros_like"),
)
"""Parts of a decomposition that are no instructions: places to write to, constants, other shapes of the same array."""


class OperatorCycles(Mode):  # type: ignore[no-untyped-call]
    """Counts, while it is entered, what operators take: each starts a program, loads, computes and stores.

    Args:
        costs: what operators compute. It may be kept from one call to the next.
    """

    def __init__(self, costs: "OperatorCosts") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self._costs = costs

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run the operator and count."""
        kwargs = kwargs or {}
        moved = [machine.memory_cycles(value) for value in _tensors((args, kwargs))]  # in place it may be resized
        out = func(*args, **kwargs)
        if func.is_view or _name(func) in _ALLOCATIONS:
            return out
        moved += [machine.memory_cycles(value) for value in _tensors(out)]
        if moved:
            self.total += cycles.START_CYCLES + sum(moved) + self._costs.compute_cycles(func, args, kwargs)
        return out


class OperatorCosts:
    """What operators of torch compute, in cycles, by operator and shapes."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def compute_cycles(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Cycles of an operator's instructions, without start, loads and stores.

        An operator whose parts are not all known takes a cycle for each group of `cycles.LANES` elements of its
        largest tensor: it moves or compares values, as sorting, indexing and pooling do.
        """
        key = str((func, tree_map(_described, (args, kwargs))))
        if key not in self.known:
            self.known[key] = _compute_cycles(func, args, kwargs)
        return self.known[key]


def _compute_cycles(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    bare_args, bare_kwargs = tree_map(_without_elements, (args, kwargs))
    parts = _Parts()
    try:
        with parts:
            func(*bare_args, **bare_kwargs)
    except Exception:  # a decomposition raises what it likes where it needs elements or knows no such arguments
        parts.known = False
    if parts.known:
        return parts.total
    return cycles.lane_cycles(max((value.numel() for value in _tensors((args, kwargs))), default=0), 1)


class _Parts(Mode):  # type: ignore[no-untyped-call]
    """Adds up the instructions of what is run while it is entered, on tensors without elements.

    Attributes:
        total: cycles.
        known: whether it consists of nothing else.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self.known = True

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run the operator, or what it consists of, and add up."""
        kwargs = kwargs or {}
        name = _name(func)
        formula = flop_registry.get(func._overloadpacket)
        free = func.is_view or name in _FREE
        instructions = () if free else _instructions(func, args, kwargs)
        if formula is None and not free and not instructions:
            parts = self._decomposed(func, args, kwargs)
            if parts is not NotImplemented:
                return parts
            self.known = False
        out = func(*args, **kwargs)
        if formula is not None:
            self.total += cycles.product_cycles(int(formula(*args, **kwargs, out_val=out)))
        elif instructions != ("convert",) or _types(out) != _types(args):
            elements = max((value.numel() for value in _tensors((args, kwargs, out))), default=0)
            self.total += sum(cycles.lane_cycles(elements, machine.lane_cost(each) or 0) for each in instructions)
        return out

    def _decomposed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self:
            if func in decomposition_table:
                return decomposition_table[func](*args, **kwargs)
            return func.decompose(*args, **kwargs)


def _instructions(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
    name = _name(func)
    if name == "clamp":  # torch's decomposition looks for NaN as well
        bounds = [*args[1:], *kwargs.values()]
        return ("maximum",) * sum(bound is not None for bound in bounds)
    known = (name,) if machine.lane_cost(name) is not None else ()
    return _PRIMITIVES.get(func._schema.name) or _INSTRUCTIONS.get(name) or known


def _name(func: Any) -> str:
    """An operator's name without its library and its overload; `add_` is an `add` whose output is its input."""
    name: str = func._schema.name.rpartition("::")[2]
    in_place = name.removesuffix("_")
    return in_place if in_place in _INSTRUCTIONS or machine.lane_cost(in_place) is not None else name


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _types(value: Any) -> set[torch.dtype]:
    return {tensor.dtype for tensor in _tensors(value)}


def _described(value: Any) -> Any:
    return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else value


def _without_elements(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return value
