"""Platform `simulated` in a runner: candidates build programs of the array machine out of symbolic arrays.

A candidate imports `array_machine`. Its `forward` gets an `Array` for each input tensor, which has a shape and a dtype
but no elements, and returns arrays. So a program cannot depend on the numbers that it will be run on.
"""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Union

import torch

from ...protocol import array_machine as machine
from ...protocol import cycles
from ...protocol.framing import Message
from ...protocol.tensors import DTYPES, build, read_rows
from ..op_traits import Mode
from .cpu.platform import CpuRunner

if TYPE_CHECKING:
    from ..main import Runner

Operand = Union["Array", float, int]


class Array:
    """A value of a program that is being built: `shape` and `dtype`, no elements."""

    def __init__(self, program: "Program", number: int, like: torch.Tensor) -> None:
        self._program = program
        self._number = number
        self._like = like  # on torch's device `meta`: shapes and dtypes are torch's own

    @property
    def shape(self) -> tuple[int, ...]:
        """Its size along each dimension."""
        return tuple(self._like.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The type of its elements."""
        return self._like.dtype

    def __add__(self, other: Operand) -> "Array":
        return self._two("add", self, other)

    def __radd__(self, other: Operand) -> "Array":
        return self._two("add", other, self)

    def __sub__(self, other: Operand) -> "Array":
        return self._two("subtract", self, other)

    def __rsub__(self, other: Operand) -> "Array":
        return self._two("subtract", other, self)

    def __mul__(self, other: Operand) -> "Array":
        return self._two("multiply", self, other)

    def __rmul__(self, other: Operand) -> "Array":
        return self._two("multiply", other, self)

    def __truediv__(self, other: Operand) -> "Array":
        return self._two("divide", self, other)

    def __rtruediv__(self, other: Operand) -> "Array":
        return self._two("divide", other, self)

    def __neg__(self) -> "Array":
        return self._program.make("negative", [self])

    def __matmul__(self, other: "Array") -> "Array":
        return self._program.make("product", [self, other])

    def _two(self, name: str, left: Operand, right: Operand) -> "Array":
        return self._program.make(name, [self._program.array(left, self), self._program.array(right, self)])


class Program:
    """The program of one call."""

    def __init__(self) -> None:
        self.instructions: list[machine.Instruction] = []

    def load(self, name: str, like: torch.Tensor, options: Mapping[str, Any]) -> Array:
        """A value that lies in memory."""
        self._append(machine.Instruction(name, (), options))
        return Array(self, len(self.instructions) - 1, like)

    def array(self, value: Operand, beside: Array) -> Array:
        """The value itself, or a constant of the type of the array beside it."""
        if isinstance(value, Array):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"array_machine: {type(value).__name__} is neither an array nor a number")
        dtype = str(beside.dtype).removeprefix("torch.")
        options = {"value": float(value), "dtype": dtype}
        return self.load("constant", torch.empty((), dtype=beside.dtype, device="meta"), options)

    def make(self, name: str, values: Sequence[Array], **options: Any) -> Array:
        """The value that an instruction makes.

        Raises:
            ValueError: there is no such instruction for these shapes.
        """
        for value in values:
            if not isinstance(value, Array) or value._program is not self:
                raise TypeError(f"array_machine.{name}: takes arrays of this call, not {type(value).__name__}")
        likes = [value._like for value in values]
        try:
            like, _ = machine.carry_out(
                machine.Instruction(name, tuple(range(len(values))), options), likes, (), {}, 1 << 40
            )
        except (RuntimeError, IndexError, ValueError, KeyError) as error:
            raise ValueError(f"array_machine.{name}: {str(error).splitlines()[0]}") from None
        self._append(machine.Instruction(name, tuple(value._number for value in values), options))
        return Array(self, len(self.instructions) - 1, like)

    def _append(self, instruction: machine.Instruction) -> None:
        if len(self.instructions) >= machine.MAX_INSTRUCTIONS:
            raise ValueError(f"array_machine: a program has at most {machine.MAX_INSTRUCTIONS} instructions")
        self.instructions.append(instruction)


class SimulatedRunner(CpuRunner):
    """The reference runs on the host's processor; candidates build programs. See `base.RunnerPlatform`."""

    def __init__(self) -> None:
        super().__init__()
        self._state: dict[str, torch.Tensor] = {}
        self._program: Program | None = None

    def modules(self) -> Mapping[str, ModuleType]:
        """The machine's instructions as functions of arrays."""
        module = ModuleType("array_machine", "The instructions of the array machine.")
        for name in (*machine.UNARY, *machine.BINARY, "multiply_add", "select", "product"):
            setattr(module, name, _function(name))
        for name in machine.REDUCE:
            setattr(module, name, _reduction(name))
        made: dict[str, Callable[..., Array]] = {
            "transpose": lambda value, first, second: _of(value).make("transpose", [value], first=first, second=second),
            "reshape": lambda value, shape: _of(value).make("reshape", [value], shape=list(shape)),
            "convert": lambda value, dtype: _of(value).make(
                "convert", [value], dtype=str(dtype).removeprefix("torch.")
            ),
            "state": self._load_state,
        }
        for name, function in made.items():
            setattr(module, name, function)
        return {"array_machine": module}

    def commands(self, runner: "Runner") -> Mapping[str, Callable[[Message], Message]]:
        """`program` builds the candidate's program, `cycles` counts what the reference's operators would take."""
        return {
            "program": lambda message: self._build(runner, message),
            "cycles": lambda message: {"cycles": _count(runner, message)},
        }

    def _build(self, runner: "Runner", message: Message) -> Message:
        program = self._program = Program()
        self._state = _meta(message["state"])
        arrays = [
            program.load("input", torch.empty(row.shape, dtype=DTYPES[row.dtype], device="meta"), {"number": number})
            for number, row in enumerate(read_rows(message["tensors"]))
        ]
        try:
            with torch.no_grad():
                made = runner.model(*build(message["spec"], arrays))  # type: ignore[arg-type]
        finally:
            self._program = None
        stores: list[int] = []
        spec = _spec(made, program, stores)
        instructions, stores = _without_unused(program.instructions, stores)
        return {"program": {"instructions": instructions, "stores": stores}, "spec": spec}

    def _load_state(self, name: str) -> Array:
        if self._program is None or name not in self._state:
            raise ValueError(f"array_machine.state: the reference has no {name!r}; it has {sorted(self._state)}")
        return self._program.load("state", self._state[name], {"name": name})


def _without_unused(instructions: Sequence[machine.Instruction], stores: Sequence[int]) -> tuple[list[Any], list[int]]:
    """The program without the values that no output needs, such as inputs that are never used."""
    needed: set[int] = set()
    waiting = list(stores)
    while waiting:
        number = waiting.pop()
        if number not in needed:
            needed.add(number)
            waiting += instructions[number].values
    order = {number: place for place, number in enumerate(sorted(needed))}
    kept = [
        machine.Instruction(each.name, tuple(order[value] for value in each.values), each.options).to_json()
        for number, each in enumerate(instructions)
        if number in needed
    ]
    return kept, [order[number] for number in stores]


def _spec(value: Any, program: Program, stores: list[int]) -> Any:
    if isinstance(value, Array):
        if value._program is not program:
            raise TypeError("forward returned an array of another call")
        stores.append(value._number)
        return {"tensor": len(stores) - 1}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_spec(item, program, stores) for item in value]}
    raise TypeError(f"forward returned {type(value).__name__}; on this platform it returns arrays of array_machine")


def _of(value: Any) -> Program:
    if not isinstance(value, Array):
        raise TypeError(f"array_machine: takes arrays, not {type(value).__name__}")
    return value._program


def _function(name: str) -> Callable[..., Array]:
    def instruction(*values: Operand) -> Array:
        beside = next((value for value in values if isinstance(value, Array)), None)
        program = _of(beside)
        assert beside is not None
        return program.make(name, [program.array(value, beside) for value in values])

    instruction.__name__ = name
    return instruction


def _reduction(name: str) -> Callable[..., Array]:
    def instruction(value: Array, dim: int = -1) -> Array:
        return _of(value).make(name, [value], dim=dim)

    instruction.__name__ = name
    return instruction


def _meta(rows: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    names = list(rows)
    read = read_rows([rows[name] for name in names])
    return {
        name: torch.empty(row.shape, dtype=DTYPES[row.dtype], device="meta")
        for name, row in zip(names, read, strict=True)
    }


class _Cycles(Mode):  # type: ignore[no-untyped-call]
    """Counts what each operator of torch takes as a program of its own: start, load, compute, store."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run the operator and count."""
        from torch.utils.flop_counter import flop_registry

        out = func(*args, **(kwargs or {}))
        if func.is_view:
            return out
        made = [value for value in (out if isinstance(out, list | tuple) else [out]) if isinstance(value, torch.Tensor)]
        given = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, torch.Tensor)]
        if not made and not given:
            return out
        self.total += cycles.START_CYCLES + sum(map(machine.memory_cycles, (*given, *made)))
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.total += cycles.product_cycles(int(formula(*args, **(kwargs or {}), out_val=out)))
        else:
            name = func._schema.name.rpartition("::")[2].rstrip("_")
            each = _TORCH_CYCLES.get(name) or machine.UNARY.get(name, (1, None))[0]
            elements = max((value.numel() for value in (*given, *made)), default=0)
            self.total += cycles.lane_cycles(elements, each)
        return out


_TORCH_CYCLES = {
    "neg": 1, "abs": 1, "pow": 2, "div": 4, "silu": 9, "gelu": 11, "_softmax": 14, "_log_softmax": 22,
    "native_layer_norm": 9, "native_batch_norm": 9, "native_group_norm": 9, "_fused_rms_norm": 6,
}  # fmt: skip
"""Cycles for each group of `LANES` elements that operators of torch take, by the instructions that they consist of."""


def _count(runner: "Runner", message: Message) -> int:
    counter = _Cycles()
    with torch.no_grad(), counter:
        runner.model(*runner.decoded(message["tree"]))
    return counter.total
