"""Platform `cpu`, as the referee meets it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import Any

import torch

from ...correctness.findings import Evidence
from ...errors import Finding
from ...isolation.calls import Call, CallRequest, InputSet
from ...isolation.handle import RunnerHandle
from ...pool.runner_pool import RunnerPool
from ...protocol.peaks import Peaks, Traffic
from ...protocol.tensors import TensorRow
from ...timing.call_times import RESOLUTION, Plan
from ...timing.sequential import SET_SD
from ..base import Account, InputBuffer, InterferenceMeter, OwnCode, Places, Screening
from . import affinity, clock, code_sampling, memory, peaks
from .account import CpuAccount
from .caches import CacheScrubber, last_level_cache_bytes
from .host_load import LoadMeter
from .input_buffer import SharedInputBuffer
from .profiling import mode
from .versions import versions

FEW_FAULTS = 32  # page faults of a baseline in a round that change nothing that can be seen


class CpuPlatform:
    """This machine's processor. See `base.Platform`."""

    name = "cpu"
    timed = "wall"
    resolution = RESOLUTION
    most_work = None
    set_sd = SET_SD

    def __init__(self, device: int) -> None:
        self.device = device  # every index is this processor

    def open(self, pool: RunnerPool) -> None:
        """Nothing is needed of it."""

    @property
    def rotation_bytes(self) -> int:
        """Twice the last-level cache."""
        return 2 * last_level_cache_bytes()

    def plan(self, plan: Plan) -> Plan:
        """The plan as it is."""
        return plan

    def address_space_bytes(self, memory_bytes: int) -> int:
        """Address space is mostly reserved, not used: there is room for thread stacks, arenas and mapped files."""
        return memory_bytes * 2 + 16 * 1024**3

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Runners hold the state themselves."""

    def handover_s(self, handle: RunnerHandle, inputs: InputSet, state: Sequence[str]) -> float:
        """See `clock.handover_s`."""
        return clock.handover_s(handle, inputs, state)

    def account(self) -> Account:
        """The kernel's account of the sandbox's processor time."""
        return CpuAccount()

    def interference_meter(self) -> InterferenceMeter:
        """What others made of this machine's cores."""
        return LoadMeter()

    def input_buffer(self, slot_bytes: int, slots: int) -> InputBuffer:
        """A sealed file in memory."""
        return SharedInputBuffer(slot_bytes, slots)

    def call(self, handle: RunnerHandle, request: CallRequest) -> Call:
        """See `clock.call`."""
        return clock.call(handle, request)

    def read(self, handle: RunnerHandle, row: TensorRow) -> torch.Tensor:
        """See `memory.read`."""
        return memory.read(handle, row)

    def flip(self, handle: RunnerHandle, row: TensorRow, elements: Sequence[int]) -> None:
        """See `memory.flip`."""
        memory.flip(handle, row, elements)

    def places(self, handle: RunnerHandle, rows: Sequence[TensorRow]) -> Places:
        """See `memory.places`."""
        return memory.places(handle.pid, rows)

    def begin_timing(self) -> None:
        """One thread for the referee itself: a pool that spins for a while would steal time from runners."""
        torch.set_num_threads(1)

    def beside_calls(self) -> AbstractContextManager[None]:
        """See `affinity.on_the_callers`."""
        return affinity.on_the_callers()

    def cache_scrubber(self) -> Callable[[], None]:
        """Fills every core's caches."""
        return CacheScrubber()

    def disturbance(self, handle: RunnerHandle) -> float:
        """Page faults so far."""
        return memory.page_faults(handle.pid)

    def is_disturbed(self, before: float, after: float) -> bool:
        """A baseline that meets fresh pages is not itself."""
        return after - before > FEW_FAULTS

    def usage_facts(self, *, disturbances: float, calls: int, cpu_s: float, timed_s: float) -> dict[str, Any]:
        """Cores kept busy and page faults."""
        return {
            "cpu_utilization_cores": round(cpu_s / max(1e-9, timed_s), 2),
            "page_faults_per_call": round(disturbances / max(1, calls), 1),
        }

    def held_bytes(self, handle: RunnerHandle) -> int:
        """See `memory.held_bytes`."""
        return memory.held_bytes(handle.members())

    def has_foreign_code(self, candidate: RunnerHandle, reference: RunnerHandle) -> bool:
        """Whether it has mapped executable files of its own making."""
        return code_sampling.has_own_code(candidate, reference)

    def own_code(
        self, candidate: RunnerHandle, inputs: InputSet, rng: Random, *, call_s: float, timeout_s: float, brief: bool
    ) -> OwnCode:
        """See `code_sampling.own_code`."""
        return code_sampling.own_code(candidate, inputs, rng, call_s=call_s, timeout_s=timeout_s, brief=brief)

    def repeated_call_s(
        self, handle: RunnerHandle, inputs: InputSet, *, call_s: float, timeout_s: float
    ) -> float | None:
        """See `clock.repeated_call_s`."""
        return clock.repeated_call_s(handle, inputs, call_s=call_s, timeout_s=timeout_s)

    def cache_bytes(self) -> int:
        """The last-level cache."""
        return last_level_cache_bytes()

    def peaks(self, pool: RunnerPool, traffic: Traffic, dtypes: Sequence[str], *, again: bool) -> Peaks:
        """See `peaks.peaks`."""
        return peaks.peaks(pool, traffic, dtypes, again=again)

    def device_figures(self, pool: RunnerPool) -> dict[str, Any]:
        """What a runner without foreign code measures, and whether other programs disturbed it."""
        meter = self.interference_meter()
        runner = pool.start("peaks")
        meter.begin()
        reply = runner.ask({"op": "device_figures", "rotation_bytes": self.rotation_bytes}, timeout_s=60)
        meter.end()
        pool.stop(runner)
        return {**reply["figures"], "noisy": meter.is_noisy(), **meter.facts()}

    def limit_facts(self) -> dict[str, Any]:
        """How many cores the sandbox may use."""
        return {"cores": len(affinity.every_core())}

    def versions(self) -> Mapping[str, str | None]:
        """See `versions.versions`."""
        return versions()

    def screen(
        self,
        pool: RunnerPool,
        reference: RunnerHandle,
        candidate: RunnerHandle,
        evidence: Evidence,
        start_candidate: Callable[[], RunnerHandle],
    ) -> Screening:
        """Nothing: calls are timed here."""
        return Screening((), {})

    def examine_source_kernel(self, pool: "RunnerPool", reference: RunnerHandle) -> Screening:
        """Nothing: no kernel is the reference where candidates are timed."""
        return Screening((), {})

    def explain(
        self, pool: RunnerPool, finding: Finding, start_candidate: Callable[[], RunnerHandle]
    ) -> tuple[Finding, Screening]:
        """As it is."""
        return finding, Screening((), {})

    def profile(self, pool: RunnerPool) -> dict[str, Any]:
        """Stacks, operators, use of the processor, and what g++ says of loops."""
        return mode.run(pool)
