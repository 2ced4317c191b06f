"""What platforms that count and do not time have in common.

Nothing can be stolen, nothing disturbs, and the referee itself holds what its machine has computed.
"""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Finding, RunnerFailed
from ..isolation.calls import Call, CallRequest, InputSet
from ..isolation.handle import FOREIGN_ROLES, RunnerHandle
from ..pool import input_supply
from ..protocol import untrusted
from ..protocol.tensors import DTYPES, TensorRow, Tree
from ..timing.call_times import Plan
from .base import InputBuffer, OwnCode, Places, Screening
from .cpu.platform import CpuPlatform

if TYPE_CHECKING:
    from ..correctness.findings import Evidence
    from ..pool.runner_pool import RunnerPool

_KEPT = 64  # calls of one runner whose outputs are kept
_FIRST = 1 << 60  # places from here on are addresses in the machine's memory


@dataclass
class DeviceMemory:
    """The memory of a machine that the referee runs: arrays at places that stand for addresses."""

    _arrays: dict[int, torch.Tensor] = field(default_factory=dict)  # bytes by their first place
    _next: int = _FIRST

    def put(self, output: torch.Tensor) -> int:
        """Keep an array, and return its place."""
        place = self._next
        self._arrays[place] = output.contiguous().flatten().view(torch.uint8)
        self._next += output.nbytes + 1  # no two lie at the same bytes
        return place

    def remove(self, place: int) -> None:
        """Forget an array."""
        del self._arrays[place]

    def holds(self, row: TensorRow) -> bool:
        """Whether a tensor lies here, and not in the memory of a process."""
        return row.place >= _FIRST

    def read(self, row: TensorRow) -> torch.Tensor:
        """The bytes of an array, or of a part of one.

        Raises:
            RunnerFailed: nothing is kept there.
        """
        return self._bytes(row).clone()

    def flip(self, row: TensorRow, elements: Sequence[int]) -> None:
        """Give elements of an array other values; done twice, they are as before.

        Raises:
            RunnerFailed: nothing is kept there.
        """
        dtype = DTYPES[row.dtype]
        data = self._bytes(row).view(-1, dtype.itemsize)
        data[list(elements)] ^= 0x55 if dtype.is_floating_point else 1

    def _bytes(self, row: TensorRow) -> torch.Tensor:
        for place, content in self._arrays.items():
            if place <= row.place and row.place + row.span_bytes <= place + content.numel():
                return content[row.place - place : row.place - place + row.span_bytes]
        raise RunnerFailed("unreadable", "nothing lies in the device's memory there")


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


class CountedPlatform(ABC):
    """A machine that counts. See `base.Platform`, whose members it has but for what each machine does in its own way.

    The reference and whatever else is no candidate runs on the host's processor: their calls, and what lies in their
    memory, are those of `CpuPlatform`.
    """

    name: str
    timed: str
    rate: float  # counts a second, nominally
    resolution = 0.0
    most_work = None
    set_sd = 0.0
    rotation_bytes = 0  # there are no caches

    def __init__(self, device: int) -> None:
        self.device = device
        self.host = CpuPlatform(device)
        self._memory = DeviceMemory()
        self._calls: dict[int, list[list[int]]] = {}  # places of each call's outputs, by process

    @abstractmethod
    def candidate_call(self, handle: RunnerHandle, request: CallRequest) -> Call:
        """A candidate's program, run and counted."""

    @abstractmethod
    def counts(self) -> dict[str, Any]:
        """What the candidate's last call was counted to take, in parts."""

    def open(self, pool: "RunnerPool") -> None:  # noqa: B027 - a machine may need nothing
        """Nothing is needed of it."""

    def address_space_bytes(self, memory_bytes: int) -> int:
        """What torch reserves on the host."""
        return self.host.address_space_bytes(memory_bytes)

    def input_buffer(self, slot_bytes: int, slots: int) -> InputBuffer:
        """On the host: the reference reads it, and a candidate's inputs lie there to be compared with."""
        return self.host.input_buffer(slot_bytes, slots)

    def versions(self) -> Mapping[str, str | None]:
        """Those of the host, where the reference runs."""
        return self.host.versions()

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

    def call(self, handle: RunnerHandle, request: CallRequest) -> Call:
        """A candidate's program, run and counted; eager's call with its count; any other runner's call."""
        if handle.role in FOREIGN_ROLES:
            return self.candidate_call(handle, request)
        if handle.role == "eager":
            return self._eager_call(handle, request)
        return self.host.call(handle, request)

    def _eager_call(self, handle: RunnerHandle, request: CallRequest) -> Call:
        """One call of the reference's model, whose runner counts what the operators that run in it would take."""
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
            counted = max(1, int(untrusted.number(reply.get(self.timed))))
        except ValueError as error:
            raise RunnerFailed("protocol", f"the runner gave no count: {error}") from None
        after = handle.tree_of(reply.get("state")) if request.state else None
        return Call(handle.tree_of(reply.get("tree")), counted / self.rate, placed, 0.0, 1, 0.0, after)

    def store(
        self, handle: RunnerHandle, spec: Any, made: Sequence[Sequence[torch.Tensor]], *, keep: int
    ) -> list[Tree]:
        """Keep the outputs of a call, for each setting of the machine, for the referee to read; where they lie.

        Raises:
            RunnerFailed: what the runner says of their form is no tree, or too large.
        """
        calls = self._calls.setdefault(handle.pid, [])
        while calls and (not keep or len(calls) > _KEPT):
            for place in calls.pop(0):
                self._memory.remove(place)
        placed = [[TensorRow(self._memory.put(output), *form_of(output)) for output in outputs] for outputs in made]
        calls.append([row.place for rows in placed for row in rows])
        return [handle.tree_of(Tree(spec, tuple(rows)).to_json()) for rows in placed]

    def read(self, handle: RunnerHandle, row: TensorRow) -> torch.Tensor:
        """Out of the machine's memory, or out of the runner's."""
        return self._memory.read(row) if self._memory.holds(row) else self.host.read(handle, row)

    def flip(self, handle: RunnerHandle, row: TensorRow, elements: Sequence[int]) -> None:
        """In the machine's memory, or in the runner's."""
        if self._memory.holds(row):
            self._memory.flip(row, elements)
        else:
            self.host.flip(handle, row, elements)

    def places(self, handle: RunnerHandle, rows: Sequence[TensorRow]) -> Places:
        """Arrays in the machine's memory share nothing with each other or with inputs."""
        if all(map(self._memory.holds, rows)):
            return Places([False] * len(rows))
        return self.host.places(handle, rows)

    def begin_timing(self) -> None:  # noqa: B027
        """Nothing to do."""

    def beside_calls(self) -> AbstractContextManager[None]:
        """Nothing can be disturbed."""
        return contextlib.nullcontext()

    def cache_scrubber(self) -> Callable[[], None]:
        """There are no caches."""
        return lambda: None

    def handover_s(self, handle: RunnerHandle, inputs: InputSet, state: Sequence[str]) -> float:
        """No part of a count."""
        return 0.0

    def disturbance(self, handle: RunnerHandle) -> float:
        """Never any."""
        return 0.0

    def is_disturbed(self, before: float, after: float) -> bool:
        """Never."""
        return False

    def usage_facts(self, *, disturbances: float, calls: int, cpu_s: float, timed_s: float) -> dict[str, Any]:
        """The counts of the candidate's last call."""
        return {self.timed: self.counts()}

    def held_bytes(self, handle: RunnerHandle) -> int:
        """Not looked at: what a runner's process holds says nothing about a count."""
        return 0

    def has_foreign_code(self, candidate: RunnerHandle, reference: RunnerHandle) -> bool:
        """What the machine runs is the candidate's own."""
        return True

    def own_code(
        self, candidate: RunnerHandle, inputs: InputSet, rng: Random, *, call_s: float, timeout_s: float, brief: bool
    ) -> OwnCode:
        """All of it."""
        return OwnCode(1.0)

    def repeated_call_s(
        self, handle: RunnerHandle, inputs: InputSet, *, call_s: float, timeout_s: float
    ) -> float | None:
        """None: a count is the same."""
        return None

    def device_figures(self, pool: "RunnerPool") -> dict[str, Any]:
        """None: the machine's description says all."""
        return {}

    def limit_facts(self) -> dict[str, Any]:
        """None."""
        return {}

    def screen(
        self,
        pool: "RunnerPool",
        reference: RunnerHandle,
        candidate: RunnerHandle,
        evidence: "Evidence",
        start_candidate: Callable[[], RunnerHandle],
    ) -> Screening:
        """Nothing: calls are counted here."""
        return Screening((), {})

    def examine_source_kernel(self, pool: "RunnerPool", reference: RunnerHandle) -> Screening:
        """Nothing: no kernel is the reference where candidates are timed."""
        return Screening((), {})

    def explain(
        self, pool: "RunnerPool", finding: Finding, start_candidate: Callable[[], RunnerHandle]
    ) -> tuple[Finding, Screening]:
        """As it is."""
        return finding, Screening((), {})

    def profile(self, pool: "RunnerPool") -> dict[str, Any]:
        """The counts of one call, in parts."""
        start = time.perf_counter()
        found: dict[str, Any] = {"absent": {}}
        try:
            reference = pool.start_reference()
            inputs = input_supply.make_inputs(pool, reference)
            candidate = pool.start_model("candidate", pool.request.candidate_source, "ModelNew")
            candidate.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=pool.request.call_timeout_s)
            found[self.timed] = self.counts()
        except (Finding, RunnerFailed) as failure:
            found["absent"] = {self.timed: untrusted.text(failure.message, 200)}
        finally:
            pool.stop_all()
        return {**found, "cost_s": {"total": round(time.perf_counter() - start, 3)}}


def row_of(value: torch.Tensor) -> dict[str, Any]:
    """The form of a tensor as a row that lies nowhere, as JSON."""
    return TensorRow(0, *form_of(value)).to_json()


def form_of(value: torch.Tensor) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """The dtype, shape and strides of a tensor, as a row has them."""
    return str(value.dtype).removeprefix("torch."), tuple(value.shape), tuple(value.stride())
