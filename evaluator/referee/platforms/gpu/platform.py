"""CUDA C++ and Triton on a GPU that is there, as the referee meets them: timed, under the rules of platform `cpu`.

Host processes are stopped, continued and accounted for as on the processor. What lies on the device is in memory that
the referee allocates (`memory.py`), and the clock ends with a copy of its own (`clock.py`).
"""

import contextlib
import os
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import Any

import torch

from ...correctness.findings import Evidence
from ...errors import Finding, RunnerFailed
from ...isolation.calls import Call, CallRequest, InputSet
from ...isolation.handle import FOREIGN_ROLES, RunnerHandle
from ...pool.runner_pool import RunnerPool
from ...protocol.device_memory import on_device
from ...protocol.nvml import NvmlError, opened
from ...protocol.peaks import Peaks, Traffic
from ...protocol.tensors import TensorRow
from ...timing.call_times import RESOLUTION, Plan
from ...timing.sequential import SET_SD
from ..base import Account, InputBuffer, InterferenceMeter, OwnCode, Places, Screening
from ..cpu import clock as host_clock
from ..cpu import peaks as peaks_of_runner
from ..cpu.platform import CpuPlatform
from .clock import Clock, Flush, buffer_of, hand_over, is_idle, needed_bytes
from .driver import Driver, DriverError, open_driver
from .kernels import own_share, read_kernels, shares
from .memory import DeviceInputBuffer
from .profiling import mode
from .watch import GpuMeter, Seen, look_at


class GpuPlatform:
    """One language on one GPU. See `base.Platform`."""

    timed = "wall"
    resolution = RESOLUTION
    most_work = None
    set_sd = SET_SD

    def __init__(self, name: str, uuid: str, device: int, *, driver: Driver | None = None) -> None:
        """Learn what there is; nothing of the device is touched before `open`.

        Args:
            name: the language's: `cuda`.
            uuid: the GPU's.
            device: its index on this host.
            driver: the GPU; None: it is opened.
        """
        self.name, self.device, self._uuid = name, device, uuid
        self._host = CpuPlatform(device)
        self._driver = driver
        self._clock: Clock | None = None
        self._pool: RunnerPool | None = None
        self._before: tuple[int, ...] = ()
        self._meter: GpuMeter | None = None
        self._alone = False  # whether all but the referee and the runner of the turn are stopped
        self._foreign_called = False

    def open(self, pool: RunnerPool) -> None:
        """See who computes on the device, then open it.

        Raises:
            Finding: the device cannot be used.
        """
        self._host.open(pool)
        self._pool = pool
        seen = look_at(self._uuid)
        self._before = (seen.users or ()) if seen is not None else ()
        with as_findings():
            if self._driver is None:
                self._driver = open_driver()
            flushed = self._driver.allocate(2 * self._driver.l2_bytes)
            self._clock = Clock(self._driver, Flush(self._driver, flushed.address, flushed.nbytes))

    @property
    def _gpu(self) -> tuple[Driver, Clock]:
        """The device, opened."""
        assert self._driver is not None and self._clock is not None
        return self._driver, self._clock

    @property
    def rotation_bytes(self) -> int:
        """Twice the L2 cache."""
        return 2 * self.cache_bytes()

    def plan(self, plan: Plan) -> Plan:
        """The plan as it is."""
        return plan

    def address_space_bytes(self, memory_bytes: int) -> int:
        """Any: the driver reserves addresses for all memory of host and device."""
        return resource.RLIM_INFINITY

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Runners hold the state themselves. The task is loaded now, and a call comes next.

        Raises:
            Finding: PyTorch has no CUDA here.
        """
        if torch.version.cuda is None:
            text = "PyTorch is built without CUDA where candidates run; install a build that has it"
            raise Finding("sandbox_error", text, "program_missing")

    def handover_s(self, handle: RunnerHandle, inputs: InputSet, state: Sequence[str]) -> float:
        """The time of a question that has the device do next to nothing, and of a snapshot of nothing."""
        with as_findings():
            return self._gpu[1].handover_s(handle)

    def account(self) -> Account:
        """The kernel's account of the sandbox's processor time."""
        return self._host.account()

    def interference_meter(self) -> InterferenceMeter:
        """What the device did, and what others made of the host."""
        self._meter = GpuMeter(self._host.interference_meter(), self._look, self._before, self._own_pids)
        return self._meter

    def input_buffer(self, slot_bytes: int, slots: int) -> InputBuffer:
        """On the device, with room for outputs as large as those seen so far."""
        driver, clock = self._gpu
        with as_findings():
            return DeviceInputBuffer(driver, slot_bytes, slots, clock.output_bytes)

    def call(self, handle: RunnerHandle, request: CallRequest) -> Call:
        """See `clock.Clock.call`. While calls are timed the device must be idle before the inputs of each are there.

        Raises:
            RunnerFailed: the runner died, failed, lied about the protocol or took too long.
            Finding: work was left running on the device, or its clock and the host's do not agree.
        """
        _, clock = self._gpu
        strict = self._alone and self._meter is not None and self._meter.running
        with as_findings():
            self._foreign_called = self._foreign_called or handle.role in FOREIGN_ROLES
            return clock.call(handle, request, see_idle=self._see_idle if strict else None)

    def read(self, handle: RunnerHandle, row: TensorRow) -> torch.Tensor:
        """Out of the referee's snapshot; of what is in none, the runner makes a copy, which is a claim.

        Raises:
            RunnerFailed: nothing readable lies there.
        """
        if not on_device(row):
            return self._host.read(handle, row)
        driver, clock = self._gpu
        data, buffer = torch.empty(row.span_bytes, dtype=torch.uint8), buffer_of(handle)
        if not data.numel():
            return data
        with as_findings():
            place = buffer.outputs.find(row)
            needed = needed_bytes([row])
            if place is None:
                is_other = buffer.outputs.prepare(needed)
                driver.wait()
                hand_over(handle, buffer, [row], 60, is_other=is_other)
                assert buffer.outputs.shared is not None
                place = buffer.outputs.shared.address
            driver.read(place, data)
        clock.output_bytes = max(clock.output_bytes, needed)
        return data

    def flip(self, handle: RunnerHandle, row: TensorRow, elements: Sequence[int]) -> None:
        """In the runner's own memory on the host; what lies on the device is not the referee's to write to.

        A turn in which the runner did it itself would be time off the clock. Outputs on the device are poisoned before
        each call, where the referee reads them.
        """
        if not on_device(row):
            self._host.flip(handle, row, elements)

    def places(self, handle: RunnerHandle, rows: Sequence[TensorRow]) -> Places:
        """On the host as the kernel tells it; on the device by the addresses that the runner tells."""
        buffer = buffer_of(handle)
        of_host = self._host.places(handle, [row for row in rows if not on_device(row)])
        inside = iter(of_host.in_input_buffer)
        return Places([buffer.holds(row) if on_device(row) else next(inside) for row in rows], of_host.folded)

    def begin_timing(self) -> None:
        """As on the host."""
        self._host.begin_timing()

    def beside_calls(self) -> AbstractContextManager[None]:
        """As on the host; within it the device is the caller's alone, once an interval of the meter has begun."""
        return self._beside()

    @contextlib.contextmanager
    def _beside(self) -> Iterator[None]:
        with self._host.beside_calls():
            self._alone = True
            try:
                yield
            finally:
                self._alone = False
                if self._meter is not None:
                    self._meter.running = False

    def cache_scrubber(self) -> Callable[[], None]:
        """Nothing more: the device's caches are emptied before every call."""
        return lambda: None

    def disturbance(self, handle: RunnerHandle) -> float:
        """None is counted of one runner."""
        return 0.0

    def is_disturbed(self, before: float, after: float) -> bool:
        """Never."""
        return False

    def usage_facts(self, *, disturbances: float, calls: int, cpu_s: float, timed_s: float) -> dict[str, Any]:
        """By how much the clocks differed at most, how many calls were charged for what came before them, and the share
        of a processor that a call kept busy.
        """
        clock = self._gpu[1]
        agreement = clock.agreement
        return {
            "clocks_differ_us": round(agreement.worst_s * 1e6, 1),
            "clocks_disagreed": agreement.disagreed,
            "uncovering_charged": f"{clock.uncovering.charged} of {clock.uncovering.calls}",
            "host_busy": round(cpu_s / max(1e-9, timed_s), 2),
        }

    def held_bytes(self, handle: RunnerHandle) -> int:
        """What its processes hold on the host and, as far as NVML tells, on the device."""
        held = self._host.held_bytes(handle)
        members = set(handle.members())
        with contextlib.suppress(NvmlError), opened() as nvml:
            held += sum(each.memory_bytes or 0 for each in nvml.users(self._uuid) if each.pid in members)
        return held

    def has_foreign_code(self, candidate: RunnerHandle, reference: RunnerHandle) -> bool:
        """Whether it has mapped executable files of its own making."""
        return self._host.has_foreign_code(candidate, reference)

    def own_code(
        self, candidate: RunnerHandle, inputs: InputSet, rng: Random, *, call_s: float, timeout_s: float, brief: bool
    ) -> OwnCode:
        """By the names of the kernels of one call, as the candidate's process tells them. No figure depends on it."""
        kernels = self._kernels(candidate, inputs, timeout_s)
        return OwnCode(own_share(kernels), {"kernels_claimed": shares(kernels)} if kernels else {})

    def _kernels(self, candidate: RunnerHandle, inputs: InputSet, timeout_s: float) -> list[tuple[str, float]]:
        with as_findings():
            reply = candidate.give({"op": "kernels"}, inputs.tree, inputs.contents, timeout_s=timeout_s + 30)
        try:
            return read_kernels(reply.get("kernels"))
        except (ValueError, TypeError) as error:
            raise RunnerFailed("protocol", f"forged or broken answer: {error}", role=candidate.role) from None

    def repeated_call_s(
        self, handle: RunnerHandle, inputs: InputSet, *, call_s: float, timeout_s: float
    ) -> float | None:
        """As on the host; the runner waits for the device at the end."""
        with as_findings():
            return host_clock.repeated_call_s(handle, inputs, call_s=call_s, timeout_s=timeout_s)

    def cache_bytes(self) -> int:
        """The L2 cache."""
        return self._gpu[0].l2_bytes

    def peaks(self, pool: RunnerPool, traffic: Traffic, dtypes: Sequence[str], *, again: bool) -> Peaks:
        """Measured on the device by a runner that has loaded nothing foreign."""
        return peaks_of_runner.peaks(pool, traffic, dtypes, again=again)

    def device_figures(self, pool: RunnerPool) -> dict[str, Any]:
        """None beside its description."""
        return {}

    def limit_facts(self) -> dict[str, Any]:
        """The cache that is emptied before each call."""
        return {"l2_bytes": self.cache_bytes()}

    def versions(self) -> Mapping[str, str | None]:
        """Those of the host, and of CUDA: what torch is built with, and what the driver can do."""
        told = self._host.versions()
        driver = None if self._driver is None else self._driver.version()
        return {**told, "cuda": torch.version.cuda, "cuda_driver": driver}

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

    def examine_source_kernel(self, pool: RunnerPool, reference: RunnerHandle) -> Screening:
        """Nothing: no kernel is the reference where candidates are timed."""
        return Screening((), {})

    def explain(
        self, pool: RunnerPool, finding: Finding, start_candidate: Callable[[], RunnerHandle]
    ) -> tuple[Finding, Screening]:
        """As it is."""
        return finding, Screening((), {})

    def profile(self, pool: RunnerPool) -> dict[str, Any]:
        """What the candidate's kernels do, by the account of its process and of NVIDIA's tools beside it."""
        return mode.run(pool)

    def _see_idle(self) -> None:
        """Check that nothing runs on the device while all processes are stopped.

        Raises:
            Finding: something does, and nobody but this evaluation has a context there.
        """
        driver, clock = self._gpu
        if is_idle(driver, clock.flush.address) or (self._meter is not None and self._meter.others):
            return  # of a device that others use the figures are noisy in any case
        if self._foreign_called:
            text = "work was left running on the GPU after the answer, while all processes were stopped"
            raise Finding("integrity", text, "work_left_running")
        raise Finding("sandbox_error", "the GPU does not come to rest while all processes are stopped", "device_failed")

    def _look(self) -> Seen | None:
        return look_at(self._uuid)

    def _own_pids(self) -> list[int]:
        running = self._pool.running if self._pool is not None else []
        return [os.getpid(), *(pid for handle in running for pid in handle.members())]


@contextlib.contextmanager
def as_findings() -> Iterator[None]:
    """What the driver refuses to the referee within the block is no fault of a runner.

    Raises:
        Finding: the driver refused a call.
    """
    try:
        yield
    except DriverError as error:
        raise Finding("sandbox_error", f"the GPU's driver: {error}", "device_failed") from None
