"""Platform `simulated`, as the referee meets it: a device that needs no hardware and whose clock is a count.

The candidate's runner says which program of the array machine it wants to be run, before it could have seen any inputs.
The referee runs the program in its own process, on inputs that it owns, and counts the cycles. The outputs lie in the
simulated device's memory, which is the referee's. What the reference's operators would take on the machine is counted
by its own runner as they run; all else about the reference is as on the host's processor.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..errors import RunnerFailed
from ..isolation.calls import Call, CallRequest, tensor
from ..isolation.handle import RunnerHandle
from ..pool.runner_pool import RunnerPool
from ..protocol import array_machine as machine
from ..protocol import cycles
from ..protocol.peaks import Peaks, Traffic
from ..protocol.tensors import Tree
from .base import InputBuffer
from .counted import CountedPlatform, row_of


class SimulatedPlatform(CountedPlatform):
    """The array machine. See `base.Platform`."""

    name = "simulated"
    timed = "cycles"
    rate = cycles.HERTZ

    def __init__(self, device: int) -> None:
        super().__init__(device)
        self._state: dict[str, torch.Tensor] = {}
        self._last: dict[int, tuple[InputBuffer, Tree]] = {}  # where each runner has its last inputs
        self.cycles: dict[str, int] = {}  # of the last program that was run, by instruction

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """The parameters and buffers that programs load, by the reference's names."""
        self._state = dict(state)

    def candidate_call(self, handle: RunnerHandle, request: CallRequest) -> Call:
        """The program that the candidate describes, run and counted."""
        assert handle.input_buffer is not None
        if request.quiet is not None:
            request.quiet()
        self._clear_inputs(handle)
        rows = {name: row_of(value) for name, value in self._state.items()}
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
        [outputs] = self.store(handle, reply.get("spec"), [run.outputs], keep=request.keep)
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

    def counts(self) -> dict[str, Any]:
        """Cycles of the last program by instruction."""
        return dict(self.cycles)

    def peaks(self, pool: RunnerPool, traffic: Traffic, dtypes: Sequence[str], *, again: bool) -> Peaks:
        """Those of the machine's description."""
        return cycles.peaks(products=bool(dtypes))
