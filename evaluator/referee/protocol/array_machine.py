"""The array machine: a small deterministic machine whose programs are data and whose clock is a count of cycles.

A program is a list of instructions. Instruction number i computes value i, an array, from earlier values. A candidate
builds a program (`runner/platforms/simulated/program.py`). The referee runs it on its own inputs and counts the
cycles (`platforms/simulated.py`), so neither the outputs nor the count are claims of the candidate.

`cycles.py` defines the cycles of an instruction. Keeping a value costs nothing: a value that is loaded once and used
twice is loaded once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import cycles
from .tensors import DTYPES

MAX_INSTRUCTIONS = 4096
_MAX_DIMS = 16
_MAX_NAME = 200

UNARY: Mapping[str, tuple[int, Callable[[torch.Tensor], torch.Tensor]]] = {
    "negative": (1, torch.neg),
    "absolute": (1, torch.abs),
    "relu": (1, torch.relu),
    "reciprocal": (4, torch.reciprocal),
    "sqrt": (4, torch.sqrt),
    "rsqrt": (4, torch.rsqrt),
    "exp": (8, torch.exp),
    "log": (8, torch.log),
    "tanh": (8, torch.tanh),
    "erf": (8, torch.erf),
    "sigmoid": (8, torch.sigmoid),
}
"""By name: the cycles for each group of `cycles.LANES` elements, and the function that is computed."""

BINARY: Mapping[str, tuple[int, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "add": (1, torch.add),
    "subtract": (1, torch.sub),
    "multiply": (1, torch.mul),
    "divide": (4, torch.div),
    "maximum": (1, torch.maximum),
    "minimum": (1, torch.minimum),
    "less": (1, torch.lt),
    "equal": (1, torch.eq),
}

REDUCE: Mapping[str, tuple[int, Callable[..., torch.Tensor]]] = {
    "sum": (1, torch.sum),
    "maximum_of": (1, torch.amax),
    "minimum_of": (1, torch.amin),
}

_LOADS = ("input", "state")
_ELEMENTWISE = ("select", "multiply_add", "convert")  # a cycle for each group of elements
_OTHER = ("constant", "product", "transpose", "reshape")


class ProgramError(Exception):
    """A program that the machine cannot run. The message names the instruction and what is wrong with it."""


@dataclass(frozen=True)
class Instruction:
    """One instruction: its name, the numbers of the values that it takes, and its options."""

    name: str
    values: tuple[int, ...] = ()
    options: Mapping[str, Any] | None = None

    def to_json(self) -> list[Any]:
        """The instruction as JSON."""
        return [self.name, list(self.values), dict(self.options or {})]


@dataclass(frozen=True)
class Run:
    """The result of a program: its output arrays, and cycles by instruction name (with `start` and `store`)."""

    outputs: list[torch.Tensor]
    cycles: dict[str, int]

    @property
    def total(self) -> int:
        """The cycles of the whole program."""
        return sum(self.cycles.values())


def parse(data: Any) -> tuple[list[Instruction], list[int]]:
    """Read a program that a runner sent, without trusting anything in it.

    Returns:
        The program's instructions, and the numbers of the values that it stores.

    Raises:
        ProgramError: it is not a program.
    """
    try:
        instructions = [_instruction(number, entry) for number, entry in enumerate(_bounded(data["instructions"]))]
        stores = [_number(value, len(instructions)) for value in _bounded(data["stores"])]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ProgramError(f"malformed program: {str(error)[:80]!r}") from None
    return instructions, stores


def run(
    instructions: Sequence[Instruction],
    stores: Sequence[int],
    inputs: Sequence[torch.Tensor],
    state: Mapping[str, torch.Tensor],
    *,
    limit_bytes: int,
) -> Run:
    """Run a program.

    Args:
        instructions: the program.
        stores: the numbers of the values that are its outputs, in order.
        inputs: the call's input tensors, in the order of the call.
        state: the model's parameters and buffers by name.
        limit_bytes: the most that all values together may take.

    Raises:
        ProgramError: an instruction cannot be carried out.
    """
    values: list[torch.Tensor] = []
    taken = {"start": cycles.START_CYCLES}
    held = 0
    for number, instruction in enumerate(instructions):
        try:
            value, cost = carry_out(instruction, values, inputs, state, limit_bytes)
        except (RuntimeError, IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
            text = str(error).strip().splitlines() or [type(error).__name__]
            raise ProgramError(f"instruction {number} ({instruction.name}): {text[0][:200]}") from None
        held += value.numel() * value.element_size()
        if held > limit_bytes:
            raise ProgramError(
                f"instruction {number} ({instruction.name}): values take more than {limit_bytes:,} bytes"
            )
        values.append(value)
        taken[instruction.name] = taken.get(instruction.name, 0) + cost
    outputs = [values[number].contiguous().clone() for number in stores]
    taken["store"] = sum(memory_cycles(output) for output in outputs)
    return Run(outputs, taken)


def memory_cycles(tensor: torch.Tensor) -> int:
    """Cycles to move a tensor's elements between memory and the machine."""
    return cycles.memory_cycles(tensor.numel() * tensor.element_size())


def lane_cost(name: str) -> int | None:
    """Cycles for each group of `cycles.LANES` elements of an instruction; None: it is none of that kind."""
    for table in (UNARY, BINARY, REDUCE):
        if name in table:
            return table[name][0]
    return 1 if name in _ELEMENTWISE else None


def carry_out(
    instruction: Instruction,
    values: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    state: Mapping[str, torch.Tensor],
    limit_bytes: int,
) -> tuple[torch.Tensor, int]:
    """Carry out one instruction. Tensors of the device `meta`, which hold no data, work as well.

    Returns:
        The value that the instruction computes, and its cycles.

    Raises:
        RuntimeError, IndexError, KeyError, TypeError, ValueError, OverflowError: it cannot be carried out.
    """
    name, options = instruction.name, instruction.options or {}
    taken = [values[number] for number in instruction.values]
    if name == "input":
        value = inputs[_number(options["number"], len(inputs))]
        return value, memory_cycles(value)
    if name == "state":
        value = state[str(options["name"])[:_MAX_NAME]]
        return value, memory_cycles(value)
    if name == "constant":
        return torch.tensor(float(options["value"]), dtype=DTYPES[options["dtype"]]), 1
    if name in UNARY:
        each, compute = UNARY[name]
        [value] = taken
        return compute(value), cycles.lane_cycles(value.numel(), each)
    elements = 0 if name == "product" else math.prod(_broadcast(*(value.shape for value in taken)))
    if elements * 8 > limit_bytes:
        raise ValueError(f"a value of {elements:,} elements is too large")
    if name in BINARY:
        each, compute_two = BINARY[name]
        left, right = taken
        return compute_two(left, right), cycles.lane_cycles(elements, each)
    if name == "multiply_add":
        first, second, third = taken
        whole = third.expand(_broadcast(first.shape, second.shape, third.shape))
        return torch.addcmul(whole, first, second), cycles.lane_cycles(elements, 1)
    if name == "select":
        condition, yes, no = taken
        return torch.where(condition, yes, no), cycles.lane_cycles(elements, 1)
    [value, *more] = taken
    if name in REDUCE:
        each, reduce = REDUCE[name]
        dim = int(options["dim"])
        return reduce(value, dim=dim, keepdim=True), cycles.lane_cycles(value.numel(), each)
    if name == "product":
        [right] = more
        batch = math.prod(_broadcast(value.shape[:-2], right.shape[:-2]))
        if (elements := batch * value.shape[-2] * right.shape[-1]) * 8 > limit_bytes:
            raise ValueError(f"a value of {elements:,} elements is too large")
        made = value @ right
        return made, cycles.product_cycles(2 * made.numel() * value.shape[-1])
    if name == "transpose":
        made = value.transpose(int(options["first"]), int(options["second"]))
        return made, memory_cycles(made)
    if name == "reshape":
        return value.reshape([int(size) for size in options["shape"]]), 0
    if name == "convert":
        return value.to(DTYPES[options["dtype"]]), cycles.lane_cycles(value.numel(), 1)
    raise ValueError("there is no such instruction")


def _broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]


def _instruction(number: int, entry: Any) -> Instruction:
    name, values, options = entry
    if name not in (*_LOADS, *UNARY, *BINARY, *REDUCE, *_ELEMENTWISE, *_OTHER):
        raise ProgramError(f"instruction {number}: there is no {str(name)[:40]!r}")
    if not isinstance(options, dict) or len(str(options)) > 4 * _MAX_NAME:
        raise ProgramError(f"instruction {number} ({name}): malformed options")
    if len(options.get("shape", ())) > _MAX_DIMS:
        raise ProgramError(f"instruction {number} ({name}): more than {_MAX_DIMS} dimensions")
    return Instruction(name, tuple(_number(value, number) for value in values), options)


def _bounded(entries: Any) -> list[Any]:
    if not isinstance(entries, list) or len(entries) > MAX_INSTRUCTIONS:
        raise ProgramError(f"a program is a list of at most {MAX_INSTRUCTIONS} instructions")
    return entries


def _number(value: Any, below: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < below:
        raise ValueError(f"{str(value)[:20]} is no number from 0 to {below - 1}")
    return value
