"""Platform `simulated`, as the referee meets it: a device that needs no hardware and whose clock is a count.

The candidate's runner says which program of the array machine it wants to be run, before it could have seen any inputs.
The referee runs the program in its own process, on inputs that it owns, and counts the cycles. The outputs lie in the
simulated device's memory, which is the referee's. What the reference's operators would take on the machine is counted
by its own runner as they run; all else about the reference is as on the host's processor.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch

from ..errors import Finding, RunnerFailed
from ..isolation.calls import Call, CallRequest, InputSet, tensor
from ..isolation.handle import FOREIGN_ROLES, RunnerHandle
from ..pool import input_supply
from ..pool.runner_pool import RunnerPool
from ..protocol import array_machine as machine
from ..protocol import cycles, untrusted
from ..protocol.peaks import Peaks, Traffic
from ..protocol.tensors import TensorRow, Tree
from ..timing.call_times import Plan
from .base import InputBuffer, OwnCode, Places
from .cpu.platform import CpuPlatform

_DEVICE_MEMORY = 1 << 60  # places from here on are numbers of arrays in the simulated device's memory
_KEPT = 64  # calls of one runner whose outputs are kept


@dataclass
class NoAccount:
    """No processor time is measured, so none can be stolen."""

    unaccounted_s: float = 0.0
    possible: bool = False

    def begin(self) -> None:
        """Nothing to do."""

    def allow(self, pids: list[int], *, born: Iterable[int] = ()) -> None:
        """Nothing to do."""

    def begin_turn(self, pids: list[int], *, whole_sandbox: bool) -> None:
        """Nothing to do."""

    def stopped(self) -> None:
        """Nothing to do."""

    def end(self) -> None:
        """Nothing to do."""


class NoInterference:
    """A count is the same however busy the host is."""

    def begin(self) -> None:
        """Nothing to do."""

    def end(self) -> None:
        """Nothing to do."""

    def is_noisy(self) -> bool:
        """Never."""
        return False

    def facts(self) -> dict[str, Any]:
        """None."""
        return {}


class SimulatedPlatform:
    """The array machine. See `base.Platform`.

    The reference and whatever else is no candidate runs on the host's processor: their calls, and what lies in their
    memory, are those of `CpuPlatform`.
    """

    name = "simulated"
    timed = "cycles"
    resolution = 0.0
    set_sd = 0.0
    rotation_bytes = 0  # there are no caches

    def __init__(self, device: int) -> None:
        self.device = device
        self._host = CpuPlatform(device)
        self._memory: dict[int, torch.Tensor] = {}
        self._calls: dict[int, list[list[int]]] = {}  # places of each call's outputs, by process
        self._next = _DEVICE_MEMORY
        self._state: dict[str, torch.Tensor] = {}
        self._last: dict[int, tuple[InputBuffer, Tree]] = {}  # where each runner has its last inputs
        self.cycles: dict[str, int] = {}  # of the last program that was run, by instruction

    def address_space_bytes(self, memory_bytes: int) -> int:
        """What torch reserves on the host."""
        return self._host.address_space_bytes(memory_bytes)

    def input_buffer(self, slot_bytes: int, slots: int) -> InputBuffer:
        """On the host: the reference reads it, and a candidate's inputs lie there to be compared with."""
        return self._host.input_buffer(slot_bytes, slots)

    def versions(self) -> Mapping[str, str | None]:
        """Those of the host, where the reference runs."""
        return self._host.versions()

    def cache_bytes(self) -> int:
        """There are no caches."""
        return 0

    def plan(self, plan: Plan) -> Plan:
        """Counts repeat exactly: two process sets of one round show that they do."""
        return replace(plan, sets=2, sets_max=2, rounds_min=1, set_s=0.0)

    def account(self) -> NoAccount:
        """None."""
        return NoAccount()

    def interference_meter(self) -> NoInterference:
        """None."""
        return NoInterference()

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """The parameters and buffers that programs load, by the reference's names."""
        self._state = dict(state)

    def call(self, handle: RunnerHandle, request: CallRequest) -> Call:
        """A candidate's program, run and counted; eager's call with its count; any other runner's call."""
        if handle.role in FOREIGN_ROLES:
            return self._candidate_call(handle, request)
        if handle.role == "eager":
            return self._eager_call(handle, request)
        return self._host.call(handle, request)

    def _eager_call(self, handle: RunnerHandle, request: CallRequest) -> Call:
        """One call of the reference's model, whose runner counts the cycles of the operators that run in it."""
        assert handle.input_buffer is not None
        if request.quiet is not None:
            request.quiet()
        placed = handle.input_buffer.put(request.tree, request.contents)
        message = {
            "op": "counted_call",
            "tree": placed.to_json(),
            "seed": request.seed,
            "keep": request.keep,
            "state": list(request.state),
        }
        reply, _ = handle.exchange(message, request.timeout_s)
        try:
            counted = max(1, int(untrusted.number(reply.get("cycles"))))
        except ValueError as error:
            raise RunnerFailed("protocol", f"the runner gave no count: {error}") from None
        after = handle.tree_of(reply.get("state")) if request.state else None
        return Call(handle.tree_of(reply.get("tree")), counted / cycles.HERTZ, placed, 0.0, 1, 0.0, after)

    def _candidate_call(self, handle: RunnerHandle, request: CallRequest) -> Call:
        assert handle.input_buffer is not None
        if request.quiet is not None:
            request.quiet()
        self._clear_inputs(handle)
        rows = {name: _row(value) for name, value in self._state.items()}
        spec_and_rows = Tree(request.tree.spec, tuple(row.at(0) for row in request.tree.tensors)).to_json()
        reply, _ = handle.exchange({"op": "program", **spec_and_rows, "state": rows}, request.timeout_s)
        try:
            instructions, stores = machine.parse(reply.get("program"))
            inputs = [tensor(row, content) for row, content in zip(request.tree.tensors, request.contents, strict=True)]
            run = machine.run(instructions, stores, inputs, self._state, limit_bytes=handle.memory_bytes // 4)
        except machine.ProgramError as error:
            raise RunnerFailed("output", f"the array machine cannot run the program: {error}") from None
        if handle.role == "candidate":
            self.cycles = run.cycles
        outputs = self._store(handle, reply.get("spec"), run.outputs, keep=request.keep)
        # The inputs lie in the runner's buffer only to be compared with later; the runner is stopped meanwhile.
        placed = handle.input_buffer.place(request.tree)
        handle.input_buffer.fill(placed, request.contents)
        self._last[handle.pid] = (handle.input_buffer, placed)
        after = Tree({"dict": []}, ()) if request.state else None
        return Call(outputs, run.total / cycles.HERTZ, placed, 0.0, 1, 0.0, after)

    def _clear_inputs(self, handle: RunnerHandle) -> None:
        buffer, placed = self._last.pop(handle.pid, (None, None))
        if placed is not None and buffer is not None and buffer is handle.input_buffer:  # a new one holds zeros
            zeros = [torch.zeros(row.span_bytes, dtype=torch.uint8) for row in placed.tensors]
            buffer.fill(placed, zeros)

    def _store(self, handle: RunnerHandle, spec: Any, made: Sequence[torch.Tensor], *, keep: bool) -> Tree:
        calls = self._calls.setdefault(handle.pid, [])
        while calls and (not keep or len(calls) > _KEPT):
            for place in calls.pop(0):
                del self._memory[place]
        places = list(range(self._next, self._next + len(made)))
        self._next += len(made)
        calls.append(places)
        rows = []
        for place, output in zip(places, made, strict=True):
            self._memory[place] = output
            rows.append(TensorRow(place, *_form(output)))
        told = Tree(spec, tuple(rows)).to_json()
        return handle.tree_of(told)

    def read(self, handle: RunnerHandle, row: TensorRow) -> torch.Tensor:
        """Out of the simulated device's memory, or out of the runner's."""
        if row.place < _DEVICE_MEMORY:
            return self._host.read(handle, row)
        return self._held(row).clone().flatten().view(torch.uint8)

    def flip(self, handle: RunnerHandle, row: TensorRow, elements: Sequence[int]) -> None:
        """In the simulated device's memory, or in the runner's."""
        if row.place < _DEVICE_MEMORY:
            self._host.flip(handle, row, elements)
            return
        data = self._held(row).view(-1).view(torch.uint8).view(-1, self._held(row).element_size())
        data[list(elements)] ^= 0x55 if self._held(row).is_floating_point() else 1

    def _held(self, row: TensorRow) -> torch.Tensor:
        if row.place not in self._memory:
            raise RunnerFailed("unreadable", "nothing lies in the device's memory there")
        return self._memory[row.place]

    def places(self, handle: RunnerHandle, rows: Sequence[TensorRow]) -> Places:
        """Arrays in the device's memory share nothing with each other or with inputs."""
        if all(row.place >= _DEVICE_MEMORY for row in rows):
            return Places([False] * len(rows))
        return self._host.places(handle, rows)

    def begin_timing(self) -> None:
        """Nothing to do."""

    def beside_calls(self) -> AbstractContextManager[None]:
        """Nothing can be disturbed."""
        return contextlib.nullcontext()

    def cache_scrubber(self) -> Callable[[], None]:
        """There are no caches."""
        return lambda: None

    def handover_s(self, handle: RunnerHandle) -> float:
        """No part of a count."""
        return 0.0

    def disturbance(self, handle: RunnerHandle) -> float:
        """Never any."""
        return 0.0

    def is_disturbed(self, before: float, after: float) -> bool:
        """Never."""
        return False

    def usage_facts(self, *, disturbances: float, calls: int, cpu_s: float, timed_s: float) -> dict[str, Any]:
        """Cycles of the last program by instruction."""
        return {"cycles": self.cycles}

    def held_bytes(self, handle: RunnerHandle) -> int:
        """Not looked at: what a runner's process holds says nothing about a count."""
        return 0

    def has_foreign_code(self, candidate: RunnerHandle, reference: RunnerHandle) -> bool:
        """A program is the candidate's own."""
        return True

    def own_code(
        self, candidate: RunnerHandle, inputs: InputSet, rng: Random, *, call_s: float, timeout_s: float
    ) -> OwnCode:
        """All of it."""
        return OwnCode(1.0)

    def peaks(self, pool: RunnerPool, traffic: Traffic, dtypes: Sequence[str], *, again: bool) -> Peaks:
        """Those of the machine's description."""
        return cycles.peaks(products=bool(dtypes))

    def limit_facts(self) -> dict[str, Any]:
        """None."""
        return {}

    def profile(self, pool: RunnerPool) -> dict[str, Any]:
        """Cycles by instruction, of one call."""
        start = time.perf_counter()
        found: dict[str, Any] = {"absent": {}}
        try:
            reference = pool.start_reference()
            inputs = input_supply.make_inputs(pool, reference)
            candidate = pool.start_model("candidate", pool.request.candidate_source, "ModelNew")
            candidate.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=pool.request.call_timeout_s)
            found["cycles"] = self.cycles
        except (Finding, RunnerFailed) as failure:
            found["absent"] = {"cycles": untrusted.text(failure.message, 200)}
        finally:
            pool.stop_all()
        return {**found, "cost_s": {"total": round(time.perf_counter() - start, 3)}}


def _row(value: torch.Tensor) -> dict[str, Any]:
    return TensorRow(0, *_form(value)).to_json()


def _form(value: torch.Tensor) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    return str(value.dtype).removeprefix("torch."), tuple(value.shape), tuple(value.stride())
