"""What torch's operators take on a machine that counts, each as a program of its own: eager on such a platform.

The parts of an operator are found by torch's own decompositions (`torch._decomp`): an operator is carried out on
tensors without elements, and what it consists of is looked up in the machine's table (`CountTable`). So `gelu` takes
four multiplications or additions and an `erf`, as a candidate's program would.
"""

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch._decomp import decomposition_table
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from ...protocol.framing import Message
from .. import model_state
from ..op_traits import Mode

if TYPE_CHECKING:
    from ..main import Runner

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


class CountTable(Protocol):
    """What a machine takes for the parts of operators, in its own unit."""

    @property
    def start(self) -> int:
        """To start a program."""
        ...

    def moved(self, nbytes: int) -> int:
        """To load a tensor of so many bytes, or to store it."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is an instruction of that name for single elements, or for a reduction."""
        ...

    def lanes(self, elements: int, name: str | None) -> int:
        """For an instruction on so many elements; None: for one that moves or compares values."""
        ...

    def product(self, flops: int) -> int:
        """For the floating-point operations of a matrix product."""
        ...


class OperatorCounter(Mode):  # type: ignore[no-untyped-call]
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
        table = self._costs.table
        moved = [table.moved(_nbytes(value)) for value in _tensors((args, kwargs))]  # in place it may be resized
        out = func(*args, **kwargs)
        if func.is_view or _name(func) in _ALLOCATIONS:
            return out
        moved += [table.moved(_nbytes(value)) for value in _tensors(out)]
        if moved:
            self.total += table.start + sum(moved) + self._costs.computed(func, args, kwargs)
        return out


class OperatorCosts:
    """What operators of torch compute, by operator and shapes, in the unit of the machine's table."""

    def __init__(self, table: CountTable) -> None:
        self.table = table
        self.known: dict[str, int] = {}

    def computed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """What an operator's instructions take, without start, loads and stores.

        An operator whose parts are not all known takes what moving or comparing each element of its largest tensor
        takes, as sorting, indexing and pooling do.
        """
        key = str((func, tree_map(_described, (args, kwargs))))
        if key not in self.known:
            self.known[key] = _computed(self.table, func, args, kwargs)
        return self.known[key]


def _computed(table: CountTable, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    bare_args, bare_kwargs = tree_map(_without_elements, (args, kwargs))
    parts = _Parts(table)
    try:
        with parts:
            func(*bare_args, **bare_kwargs)
    except Exception:  # a decomposition raises what it likes where it needs elements or knows no such arguments
        parts.known = False
    if parts.known:
        return parts.total
    return table.lanes(max((value.numel() for value in _tensors((args, kwargs))), default=0), None)


class _Parts(Mode):  # type: ignore[no-untyped-call]
    """Adds up the instructions of what is run while it is entered, on tensors without elements.

    Attributes:
        total: what it takes.
        known: whether it consists of nothing else.
    """

    def __init__(self, table: CountTable) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._table = table
        self.total = 0
        self.known = True

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run the operator, or what it consists of, and add up."""
        kwargs = kwargs or {}
        name = _name(func)
        formula = flop_registry.get(func._overloadpacket)
        free = func.is_view or name in _FREE
        instructions = () if free else _instructions(self._table, func, args, kwargs)
        if formula is None and not free and not instructions:
            parts = self._decomposed(func, args, kwargs)
            if parts is not NotImplemented:
                return parts
            self.known = False
        out = func(*args, **kwargs)
        if formula is not None:
            self.total += self._table.product(int(formula(*args, **kwargs, out_val=out)))
        elif instructions != ("convert",) or _types(out) != _types(args):
            elements = max((value.numel() for value in _tensors((args, kwargs, out))), default=0)
            self.total += sum(self._table.lanes(elements, each) for each in instructions)
        return out

    def _decomposed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self:
            if func in decomposition_table:
                return decomposition_table[func](*args, **kwargs)
            return func.decompose(*args, **kwargs)


def _instructions(table: CountTable, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
    name = _name(func)
    if name not in _INSTRUCTIONS and not table.has(name) and table.has(name.removesuffix("_")):
        name = name.removesuffix("_")  # `exp_` is an `exp` whose output is its input
    if name == "clamp":  # torch's decomposition looks for NaN as well
        bounds = [*args[1:], *kwargs.values()]
        return ("maximum",) * sum(bound is not None for bound in bounds)
    known = (name,) if table.has(name) else ()
    return _PRIMITIVES.get(func._schema.name) or _INSTRUCTIONS.get(name) or known


def _name(func: Any) -> str:
    """An operator's name without its library and its overload; `mul_` is a `mul` whose output is its input."""
    name: str = func._schema.name.rpartition("::")[2]
    in_place = name.removesuffix("_")
    return in_place if in_place in _INSTRUCTIONS else name


def _nbytes(value: torch.Tensor) -> int:
    return value.numel() * value.element_size()


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


def counted_call(runner: "Runner", message: Message, operators: OperatorCosts, unit: str) -> Message:
    """One call of the model, as `Runner.call` makes it, and what its operators take, under the name `unit`."""
    inputs = runner.decoded(message["tree"])
    if not message["keep"]:
        runner.kept.clear()
    torch.default_generator.manual_seed(message["seed"])
    counter = OperatorCounter(operators)
    with torch.no_grad(), counter:
        value = runner.model(*inputs)
    reply = {**runner.reveal(value), unit: counter.total}
    if message["state"]:
        reply["state"] = runner.reveal(model_state.some_tensors(runner.model, message["state"]))["tree"]
    return reply
