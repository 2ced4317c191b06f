"""Platforms `riscv` and `arm64`, as the referee meets them: C kernels under an emulator that counts instructions.

The candidate's runner describes a program for inputs of certain forms, before it could have seen any. The referee keeps
the program: all calls on inputs of that form run it, so what is counted is what was judged. A runner of the referee's
own (role `guest`), which has loaded nothing foreign, compiles it and runs it under qemu-user, at each vector length,
with the plugin that counts. Its outputs are the referee's from then on; the candidate's Python never sees an input.

What is believed of the guest's runner is that its emulator and plugin were not taken over by the guest: see
`runner/platforms/emulated/plugin.c`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Finding, RunnerFailed
from ..isolation.calls import Call, CallRequest, tensor
from ..isolation.handle import RunnerHandle
from ..protocol import instructions, untrusted
from ..protocol import kernel_program as kp
from ..protocol.peaks import Peaks, Traffic
from ..protocol.tensors import DTYPES, TensorRow, Tree, bytes_needed
from .counted import CountedPlatform, form_of, row_of

if TYPE_CHECKING:
    from ..pool.runner_pool import RunnerPool

_MORE_S = 60.0  # that the guest's runner may take beside the kernels: it compiles
_KINDS = ("build", "error", "timed_out")  # of failures that are the candidate's


@dataclass(frozen=True)
class _Described:
    """The program of a candidate for inputs of one form, and the form of its outputs."""

    program: kp.Program
    spec: Any
    forms: tuple[tuple[str, tuple[int, ...]], ...]

    def outputs(self, contents: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs of a run, made of their bytes."""
        return [
            content.view(DTYPES[dtype]).reshape(shape)
            for content, (dtype, shape) in zip(contents, self.forms, strict=True)
        ]


@dataclass(frozen=True)
class _Run:
    """A run at one vector length: its counts, outputs, and the inputs that it has changed, by number."""

    vlen: int
    counts: dict[str, int]
    launches: list[int]
    loaded_bytes: int
    stored_bytes: int
    outputs: list[torch.Tensor]
    changed: dict[int, torch.Tensor]


class EmulatedPlatform(CountedPlatform):
    """Kernels under qemu-user. See `base.Platform`."""

    timed = "instructions"
    rate = instructions.HERTZ

    def __init__(self, name: str, widest: instructions.Widest, device: int) -> None:
        super().__init__(device)
        self.name = name
        self._widest = widest
        self._pool: RunnerPool | None = None
        self._guest: RunnerHandle | None = None
        self._programs: dict[tuple[str, str], _Described] = {}
        self._state: dict[str, torch.Tensor] = {}
        self._turn = 0
        self._last: tuple[_Described, list[_Run]] | None = None  # the candidate's last call

    def open(self, pool: "RunnerPool") -> None:
        """The guest's runner is started by the pool."""
        self._pool = pool

    def versions(self) -> Mapping[str, str | None]:
        """Those of the host, where the reference runs, and of compiler and emulator."""
        return {**self.host.versions(), **self._tool_versions()}

    def _tool_versions(self) -> dict[str, str | None]:
        if self._pool is None:
            return {}
        try:
            handle = self._pool.start("guest")
            reply = handle.ask({"op": "tool_versions"}, timeout_s=60)
            self._pool.stop(handle)
        except (RunnerFailed, Finding):
            return {}
        return {name: text and untrusted.text(text, 100) for name, text in dict(reply["versions"]).items()}

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """The parameters and buffers that kernels read, by the reference's names."""
        self._state = {name: value.contiguous() for name, value in state.items()}

    def candidate_call(self, handle: RunnerHandle, request: CallRequest) -> Call:
        """The program that the candidate describes, run and counted."""
        assert handle.input_buffer is not None
        if request.quiet is not None:
            request.quiet()
        described = self._described(handle, request)
        inputs = [tensor(row, content) for row, content in zip(request.tree.tensors, request.contents, strict=True)]
        runs = self._run(handle, described.program, inputs, request.timeout_s)
        if handle.role == "candidate":
            self._last = described, runs
        # The inputs lie in the runner's buffer only to be compared with later; the runner is stopped meanwhile.
        placed = handle.input_buffer.place(request.tree)
        handle.input_buffer.fill(placed, _after(request, {n: each for run in runs for n, each in run.changed.items()}))
        total = sum(run.counts["total"] for run in runs)
        after = Tree({"dict": []}, ()) if request.state else None
        # Each vector length is judged in the examination. Of a timed call, one after the other in turn.
        self._turn += 1
        turned = [runs[(self._turn + number) % len(runs)] for number in range(len(runs))]
        stored = self.store(
            handle, described.spec, [described.outputs(run.outputs) for run in turned], keep=request.keep
        )
        calls = [
            Call(outputs, total / instructions.HERTZ, placed, 0.0, 1, 0.0, after, where=f" at vlen {run.vlen}")
            for run, outputs in zip(turned, stored, strict=True)
        ]
        return replace(calls[0], others=tuple(calls[1:]))

    def _described(self, handle: RunnerHandle, request: CallRequest) -> _Described:
        """The candidate's program for inputs of this form: asked for once, whatever the process."""
        spec_and_rows = Tree(request.tree.spec, tuple(row.at(0) for row in _contiguous(request.tree))).to_json()
        key = (handle.role, json.dumps(spec_and_rows, sort_keys=True))
        if key not in self._programs:
            rows = {name: row_of(value) for name, value in self._state.items()}
            reply, _ = handle.exchange({"op": "program", **spec_and_rows, "state": rows}, request.timeout_s)
            try:
                program = kp.parse(
                    reply.get("program"),
                    inputs=len(request.tree.tensors),
                    states=list(self._state),
                    limit_bytes=handle.memory_bytes // 8,
                )
                forms = tuple((str(dtype), tuple(map(int, shape))) for dtype, shape in reply.get("rows") or ())
                self._check_forms(program, forms, inputs=request.tree.tensors)
            except (kp.ProgramError, TypeError, ValueError, KeyError) as error:
                raise RunnerFailed("output", f"its program cannot be run: {str(error)[:300]}") from None
            self._programs[key] = _Described(program, reply.get("spec"), forms)
        return self._programs[key]

    def _check_forms(
        self, program: kp.Program, forms: Sequence[tuple[str, tuple[int, ...]]], *, inputs: Sequence[TensorRow]
    ) -> None:
        """Check that each output's array is as large as its form says.

        Raises:
            ValueError: one is not.
        """
        if len(forms) != len(program.outputs):
            raise ValueError("outputs and their forms do not match")
        for number, (dtype, shape) in zip(program.outputs, forms, strict=True):
            array = program.arrays[number]
            if isinstance(array, kp.Made):
                held = array.nbytes
            elif isinstance(array, kp.State):
                held = self._state[array.name].nbytes
            else:
                held = inputs[array.number].element_bytes
            if min(shape, default=0) < 0 or torch.empty(shape, dtype=DTYPES[dtype], device="meta").nbytes != held:
                raise ValueError(f"an output of shape {list(shape)} does not fit its array")

    def _run(
        self, handle: RunnerHandle, program: kp.Program, inputs: Sequence[torch.Tensor], timeout_s: float
    ) -> list[_Run]:
        """Run a program on inputs of the referee's at each vector length.

        Raises:
            RunnerFailed: it does not compile, broke a rule, or did not end.
            Finding: compiler or emulator is not installed.
        """
        given = []
        for array in program.arrays:
            if isinstance(array, kp.Input):
                given.append(inputs[array.number].contiguous())
            elif isinstance(array, kp.State):
                given.append(self._state[array.name])
        rows = tuple(TensorRow(0, *form_of(value)) for value in given)
        tree = Tree({"list": [{"tensor": number} for number in range(len(rows))]}, rows)
        contents = [value.flatten().view(torch.uint8) for value in given]
        message = {
            "op": "run_guest",
            "program": program.to_json(),
            "inputs": len(inputs),
            "states": list(self._state),
            "limit_bytes": handle.memory_bytes,
            "vlens": list(instructions.VLENS),
            "timeout_s": timeout_s,
        }
        try:
            guest = self._guest_runner()
            guest.attach(self.host.input_buffer(bytes_needed(tree), 1))
            reply = guest.give(message, tree, contents, timeout_s=timeout_s + _MORE_S)
            if "runs" in reply:
                return [
                    self._read_run(guest, program, *each)
                    for each in zip(instructions.VLENS, reply["runs"], strict=True)
                ]
        except RunnerFailed as failure:
            self._end_guest()
            if failure.kind == "error":  # nothing foreign runs in that process but under the emulator
                raise Finding("sandbox_error", failure.message, "guest_failed", failure.detail) from None
            raise RunnerFailed(failure.kind, f"running its kernels: {failure.message}", failure.detail) from None
        text, detail = untrusted.text(str(reply.get("message")), 600), untrusted.text(str(reply.get("detail")), 4000)
        if reply.get("failed") in _KINDS:
            raise RunnerFailed(str(reply["failed"]), text, detail)
        raise Finding("sandbox_error", text, "program_missing")

    def _read_run(self, guest: RunnerHandle, program: kp.Program, vlen: int, told: Mapping[str, Any]) -> _Run:
        tree = guest.tree_of(told["tree"])
        read = [guest.read(row) for row in tree.tensors]
        count = len(program.outputs)
        return _Run(
            vlen,
            {str(name): int(number) for name, number in told["counts"].items()},
            [int(number) for number in told["launches"]],
            int(told["loaded_bytes"]),
            int(told["stored_bytes"]),
            read[:count],
            dict(zip(map(int, told["changed"]), read[count:], strict=True)),
        )

    def _guest_runner(self) -> RunnerHandle:
        assert self._pool is not None
        if self._guest is None or self._guest not in self._pool.running:
            self._guest = self._pool.start("guest")
        return self._guest

    def _end_guest(self) -> None:
        assert self._pool is not None
        if self._guest is not None and self._guest in self._pool.running:
            self._pool.stop(self._guest)
        self._guest = None

    def counts(self) -> dict[str, Any]:
        """The counts of the candidate's last call, at each vector length."""
        if self._last is None:
            return {}
        described, runs = self._last
        names = [launch.function for launch in described.program.launches]
        return {
            str(run.vlen): {
                **run.counts,
                "launches": [list(each) for each in zip(names, run.launches, strict=False)][:32],
                "loaded_bytes": run.loaded_bytes,
                "stored_bytes": run.stored_bytes,
            }
            for run in runs
        }

    def peaks(self, pool: "RunnerPool", traffic: Traffic, dtypes: Sequence[str], *, again: bool) -> Peaks:
        """Those of the machine's description."""
        return instructions.peaks(self._widest, products=bool(dtypes))


def _contiguous(tree: Tree) -> list[TensorRow]:
    """The rows of a tree's tensors as kernels get them."""
    rows = []
    for row in tree.tensors:
        bare = torch.empty(row.shape, dtype=DTYPES[row.dtype], device="meta")
        rows.append(TensorRow(0, *form_of(bare)))
    return rows


def _after(request: CallRequest, changed: Mapping[int, torch.Tensor]) -> list[torch.Tensor]:
    """The bytes of the call's inputs after it: those that kernels have changed, and the others as they were."""
    contents = list(request.contents)
    for number, after in changed.items():
        row, content = request.tree.tensors[number], request.contents[number].clone()
        tensor(row, content).copy_(after.view(DTYPES[row.dtype]).reshape(row.shape))
        contents[number] = content
    return contents
