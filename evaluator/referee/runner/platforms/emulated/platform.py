"""A platform under qemu-user in a runner: one of three kinds.

A candidate's runner describes programs (`program.py`). The runner `guest`, which loads nothing foreign, compiles and
runs them (`guest.py`). Eager's runner counts what the reference's operators would take, by the platform's table.
"""

import contextlib
import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from ....protocol import kernel_program as kp
from ....protocol.framing import Message
from ....protocol.tensors import build, read_rows
from ..operator_counts import OperatorCosts, counted_call
from . import guest, program
from .instruction_set import InstructionSet
from .instruction_table import InstructionTable

if TYPE_CHECKING:
    from ...main import Runner


class EmulatedRunner:
    """See `base.RunnerPlatform`. Nothing is timed, so there is nothing that timed calls would have to be kept from."""

    def __init__(self, instruction_set: InstructionSet, table: InstructionTable) -> None:
        self._builder: program.Builder | None = None
        self._operators = OperatorCosts(table)
        self._instruction_set = instruction_set
        self._machine: guest.Machine | None = None

    def modules(self) -> Mapping[str, ModuleType]:
        """The module of the platform's name."""
        return {self._instruction_set.name: program.module(self._instruction_set.name, self._current)}

    def commands(self, runner: "Runner") -> Mapping[str, Callable[[Message], Message]]:
        """`program` for candidates, `run_guest` for the guest's runner, `counted_call` for eager."""
        return {
            "program": lambda message: self._describe(runner, message),
            "run_guest": lambda message: self._run_guest(runner, message),
            "tool_versions": lambda message: {"versions": guest.versions(self._instruction_set)},
            "counted_call": lambda message: counted_call(runner, message, self._operators, "instructions"),
        }

    def keep_builds(self, folder: Path) -> None:
        """The guest's runner compiles, not the candidate's."""

    def foreign_code(self) -> AbstractContextManager[None]:
        """Nothing: a candidate gets arrays without elements, whatever torch does."""
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

    def _current(self) -> program.Builder:
        if self._builder is None:
            raise RuntimeError(f"{self._instruction_set.name}: arrays and kernels are used in the model's call only")
        return self._builder

    def _describe(self, runner: "Runner", message: Message) -> Message:
        """Have the model describe its program for inputs of these forms."""
        states = {name: (row.dtype, row.shape) for name, row in zip(
            message["state"], read_rows(list(message["state"].values())), strict=True)}  # fmt: skip
        described = self._builder = program.Builder(self._instruction_set.name, states)
        arrays = [
            described.add(kp.Input(number), row.dtype, row.shape)
            for number, row in enumerate(read_rows(message["tensors"]))
        ]
        try:
            with torch.no_grad():
                made = runner.model(*build(message["spec"], arrays))  # type: ignore[arg-type]
        finally:
            self._builder = None
        outputs: list[int] = []
        rows: list[tuple[str, tuple[int, ...]]] = []
        spec = described.spec(made, outputs, rows)
        whole = kp.Program(
            described.source, described.flags, tuple(described.arrays), tuple(described.launches), tuple(outputs)
        )
        return {"program": whole.to_json(), "spec": spec, "rows": rows}

    def _run_guest(self, runner: "Runner", message: Message) -> Message:
        """Run a program at each vector length, on inputs and state that lie in the input buffer."""
        runner.kept.clear()
        gc.collect()  # the arenas of the last run
        if self._machine is None:
            torch.set_num_threads(1)  # it copies arrays, beside emulators that take every processor
            self._machine = guest.Machine(self._instruction_set, Path.cwd() / "guest")
        asked = kp.parse(
            message["program"], inputs=message["inputs"], states=message["states"], limit_bytes=message["limit_bytes"]
        )
        given = [tensor.view(-1).view(torch.uint8) for tensor in runner.decoded(message["tree"])]
        try:
            layout, runs = self._machine.run(asked, given, message["vlens"], timeout_s=message["timeout_s"])
        except guest.GuestError as error:
            return {"failed": error.kind, "message": str(error), "detail": error.detail}
        except FileNotFoundError as error:
            return {"failed": "missing", "message": str(error), "detail": ""}
        return {"runs": [self._told(runner, asked, layout, given, ended) for ended in runs]}

    def _told(
        self,
        runner: "Runner",
        asked: kp.Program,
        layout: guest.Layout,
        given: Sequence[torch.Tensor],
        ended: guest.Ended,
    ) -> dict[str, Any]:
        """Counts of a run, and where its outputs lie, and the inputs that it has changed."""
        contents = iter(given)
        changed: list[tuple[int, torch.Tensor]] = []
        for array, placed in zip(asked.arrays, layout.arrays, strict=True):
            if isinstance(array, kp.Made):
                continue
            before, after = next(contents), ended.arena[placed.offset : placed.offset + placed.nbytes]
            if isinstance(array, kp.Input) and not torch.equal(before, after):
                changed.append((array.number, after))
        places = [layout.arrays[number] for number in asked.outputs]
        outputs = [ended.arena[placed.offset : placed.offset + placed.nbytes] for placed in places]
        return {
            **guest.counts_json(ended),
            "changed": [number for number, _ in changed],
            "tree": runner.reveal([*outputs, *(after for _, after in changed)])["tree"],
        }
