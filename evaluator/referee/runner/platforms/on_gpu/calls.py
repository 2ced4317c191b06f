"""The commands that differ on a GPU: inputs lie in the referee's memory there, and outputs are put into it.

Nothing here is evidence. A runner that leaves the copy out, or answers before the device has done its work, leaves
poison where the referee reads.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ....protocol.device_memory import on_device, output_offsets
from ....protocol.framing import Message
from ....protocol.tensors import TensorRow, build, encode, read_rows
from ... import model_state
from .memory import Memory, span_of, view_at
from .profiling.profiler import Profiler

if TYPE_CHECKING:
    from ...main import Runner

Command = Callable[[Message], Message]


class DeviceCalls:
    """The commands of one runner."""

    def __init__(self, runner: "Runner", memory: Memory) -> None:
        self._runner, self._memory = runner, memory
        self._inputs = self._outputs = 0  # where the slots, and the memory for outputs, are opened
        self._room = torch.empty(0, dtype=torch.uint8)  # the memory for outputs, as this process sees it
        self._moved: Any = None  # the model that has been moved to the device
        self._profiler = Profiler(runner.decoded, self._model, memory)

    def commands(self) -> Mapping[str, Command]:
        """In place of the common ones of these names, or beside them."""
        runner = self._runner
        return {
            "attach": self.attach,
            "construct": self._on_host(runner.construct),
            "unpack": self._on_host(runner.unpack),
            "load_state": self._moved_before(runner.load_state),
            "state": self._moved_before(runner.state),
            "oracle": self._moved_before(runner.oracle),
            "work": self._moved_before(runner.work),
            "wrap": self._moved_before(runner.wrap),
            "repeat": self.repeat,
            "call": self.call,
            "hand_over": self.hand_over,
            "touch": self.touch,
            "kernels": self.kernels,
            "profile": self._profiler.answer,
        }

    def attach(self, message: Message) -> Message:
        """Open the memory of inputs, and that for outputs where there is some already."""
        before = self._inputs
        self._inputs, *outputs = self._opened(message["sizes"])
        self._memory.close(before)
        self._take_outputs(outputs, message["sizes"][1:])
        self._runner.tensor_at = self._input
        return {}

    def call(self, message: Message) -> Message:
        """Call the model once, as `Runner.call` does, and put the outputs where the referee takes its copy from."""
        runner = self._runner
        self._move()
        tensors = [self._input(row) for row in read_rows(message["tensors"])]
        with torch.no_grad():
            inputs = None if message["spec"] is None else build(message["spec"], tensors)
            go, inputs = runner.wait_for_go(inputs, tensors)
            if not go.keep:
                runner.kept.clear()
            torch.manual_seed(go.seed)
            with runner.platform.foreign_code():
                value = runner.called(*inputs)
            tree, outputs = encode(value)
            runner.kept.append((value, outputs))
            reply: Message = {"tree": tree.to_json(), "inputs_at": self._inputs}
            rows = list(tree.tensors)
            if go.state:
                state = model_state.some_tensors(runner.model, go.state)
                state_tree, held = encode(state)
                runner.kept.append((state, held))
                reply["state"] = state_tree.to_json()
                rows, outputs = [*rows, *state_tree.tensors], [*outputs, *held]
            placed = [(row, tensor) for row, tensor in zip(rows, outputs, strict=True) if on_device(row)]
            self._put([row for row, _ in placed], [span_of(tensor, row.span_bytes) for row, tensor in placed])
            self._memory.wait()
        return reply

    def hand_over(self, message: Message) -> Message:
        """Copy what lies at these places into the memory for outputs, which may be another than before."""
        self._take_outputs(self._opened(message["sizes"]), message["sizes"])
        rows = read_rows(message["rows"])
        self._put(rows, [self._memory.at(row.place, row.span_bytes) for row in rows])
        self._memory.wait()
        return {}

    def touch(self, _: Message) -> Message:
        """Have the device do next to nothing: what is left of a call without the model's work."""
        self._room[:1].zero_()
        self._memory.wait()
        return {}

    def repeat(self, message: Message) -> Message:
        """Call the model several times, and wait for the device once."""
        self._move()
        self._runner.repeat(message)
        self._memory.wait()
        return {}

    def kernels(self, message: Message) -> Message:
        """Names and microseconds of the kernels of one call, by torch's profiler; none where it may not look."""
        from torch._C._autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        self._move()
        inputs = self._runner.decoded(message["tree"])
        with (
            torch.no_grad(),
            profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as seen,
        ):
            self._runner.model(*inputs)
            self._memory.wait()
        on_gpu = [each for each in seen.key_averages() if each.device_type == DeviceType.CUDA]
        return {"kernels": [[str(each.key)[:200], float(each.self_device_time_total)] for each in on_gpu[:1000]]}

    def _input(self, row: Any) -> torch.Tensor:
        return view_at(self._memory, self._inputs, row)

    def _put(self, rows: Sequence[TensorRow], spans: Sequence[torch.Tensor]) -> None:
        """Copy bytes to where each belongs; none where there is no room, which the referee sees by itself."""
        offsets, needed = output_offsets(rows)
        if needed > self._room.numel():
            return
        for offset, span in zip(offsets, spans, strict=True):
            if span.numel():
                self._room[offset : offset + span.numel()].copy_(span)

    def _opened(self, sizes: list[int]) -> list[int]:
        """The addresses at which what the referee sends is opened here."""
        if not sizes:
            return []
        _, fds, _, _ = socket.recv_fds(self._runner.sock, 1, len(sizes))
        try:
            return [self._memory.open(fd, size) for fd, size in zip(fds, sizes, strict=True)]
        finally:
            for fd in fds:
                os.close(fd)

    def _take_outputs(self, addresses: list[int], sizes: list[int]) -> None:
        for address, size in zip(addresses, sizes, strict=True):
            self._room = self._memory.at(address, size)
            self._memory.close(self._outputs)
            self._outputs = address

    def _move(self) -> None:
        """Have the model on the device, once it has been made and varied on the host."""
        model = self._runner.model
        if model is not self._moved:
            if isinstance(model, torch.nn.Module):
                model.to(self._memory.device)
            self._moved = model

    def _model(self) -> Any:
        self._move()
        return self._runner.model

    def _moved_before(self, command: Command) -> Command:
        def run(message: Message) -> Message:
            self._move()
            return command(message)

        return run

    def _on_host(self, command: Command) -> Command:
        """A command that takes its tensors on the host."""

        def run(message: Message) -> Message:
            self._runner.tensor_at = lambda row: self._input(row).cpu()
            try:
                return command(message)
            finally:
                self._runner.tensor_at = self._input

        return run
