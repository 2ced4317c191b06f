"""Platform `simulated` in a runner: candidates build programs of the array machine out of symbolic arrays.

A candidate imports `array_machine`. Its `forward` gets an `Array` for each input tensor, which has a shape and a dtype
but no elements, and returns arrays. So a program cannot depend on the numbers that it will be run on.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from ....protocol import array_machine as machine
from ....protocol.framing import Message
from ....protocol.tensors import DTYPES, build, read_rows
from ..operator_counts import OperatorCosts, counted_call
from .cycle_table import CYCLE_TABLE
from .program import Array, Operand, Program

if TYPE_CHECKING:
    from ...main import Runner


class SimulatedRunner:
    """The reference's operators are counted, candidates build programs. See `base.RunnerPlatform`.

    Nothing is timed on this platform, so there is nothing that timed calls would have to be readied for or kept from.
    """

    def __init__(self) -> None:
        self._state: dict[str, torch.Tensor] = {}
        self._program: Program | None = None
        self._operators = OperatorCosts(CYCLE_TABLE)

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
        """`program` builds the candidate's program, `counted_call` calls the reference's model and counts."""
        return {
            "program": lambda message: self._build(runner, message),
            "counted_call": lambda message: counted_call(runner, message, self._operators, "cycles"),
        }

    def keep_builds(self, folder: Path) -> None:
        """Nothing is compiled."""

    def foreign_code(self) -> AbstractContextManager[None]:
        """Nothing differs."""
        return contextlib.nullcontext()

    def settle(self) -> None:
        """Nothing to do."""

    def give_way(self) -> None:
        """Nothing to do."""

    def beside_calls(self) -> AbstractContextManager[None]:
        """Nothing can be disturbed."""
        return contextlib.nullcontext()

    def measure_peaks(self, points: Sequence[str]) -> dict[str, float]:
        """Nothing is measured: the referee knows them from the machine's description."""
        return {}

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
