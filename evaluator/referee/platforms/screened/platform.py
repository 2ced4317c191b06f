"""The platforms for GPUs where there is none: nothing is timed; candidates run on the host and are screened.

Reference and candidate run on the host's processor. Their calls, and what lies in their memory, are those of
`CpuPlatform`.
"""

import contextlib
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import Any

import torch

from ...correctness.findings import Evidence
from ...errors import Finding, RunnerFailed
from ...isolation.calls import Call, CallRequest, InputSet
from ...isolation.handle import RunnerHandle
from ...pool import input_supply
from ...pool.runner_pool import RunnerPool
from ...protocol import untrusted
from ...protocol.peaks import Peaks, Traffic
from ...protocol.tensors import TensorRow
from ...timing.call_times import Plan
from ..base import Account, InputBuffer, InterferenceMeter, OwnCode, Places, Screening
from ..cpu.platform import CpuPlatform
from . import screening, source_kernel
from .screening import Language


class ScreenedPlatform:
    """Kernels of one language, screened on the host. See `base.Platform`."""

    timed = "nothing"
    resolution = 0.0
    set_sd = 0.0
    rotation_bytes = 0

    def __init__(self, name: str, language: Language, device: int) -> None:
        self.name = name
        self.device = device
        self._language = language
        self.most_work = language.most_work
        self._host = CpuPlatform(device)

    def open(self, pool: RunnerPool) -> None:
        """As on the host."""
        self._host.open(pool)

    def plan(self, plan: Plan) -> Plan:
        """As it is: nothing is timed."""
        return plan

    def address_space_bytes(self, memory_bytes: int) -> int:
        """Any: the thread sanitizer reserves most of what a process can have. The sandbox bounds memory itself."""
        return resource.RLIM_INFINITY

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Runners hold the state themselves. The task is loaded now, and a candidate comes next.

        Raises:
            Finding: what candidates need is not installed.
        """
        if self._language.missing:
            raise Finding("sandbox_error", self._language.missing, "program_missing")

    def handover_s(self, handle: RunnerHandle, inputs: InputSet, state: Sequence[str]) -> float:
        """Nothing is timed."""
        return 0.0

    def account(self) -> Account:
        """That of the host."""
        return self._host.account()

    def interference_meter(self) -> InterferenceMeter:
        """That of the host."""
        return self._host.interference_meter()

    def input_buffer(self, slot_bytes: int, slots: int) -> InputBuffer:
        """On the host."""
        return self._host.input_buffer(slot_bytes, slots)

    def call(self, handle: RunnerHandle, request: CallRequest) -> Call:
        """As on the host."""
        return self._host.call(handle, request)

    def read(self, handle: RunnerHandle, row: TensorRow) -> torch.Tensor:
        """Out of the runner's memory."""
        return self._host.read(handle, row)

    def flip(self, handle: RunnerHandle, row: TensorRow, elements: Sequence[int]) -> None:
        """In the runner's memory."""
        self._host.flip(handle, row, elements)

    def places(self, handle: RunnerHandle, rows: Sequence[TensorRow]) -> Places:
        """In the runner's memory."""
        return self._host.places(handle, rows)

    def begin_timing(self) -> None:
        """Nothing is timed."""

    def beside_calls(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return contextlib.nullcontext()

    def cache_scrubber(self) -> Callable[[], None]:
        """Nothing is timed."""
        return lambda: None

    def disturbance(self, handle: RunnerHandle) -> float:
        """Nothing is timed."""
        return 0.0

    def is_disturbed(self, before: float, after: float) -> bool:
        """Never."""
        return False

    def usage_facts(self, *, disturbances: float, calls: int, cpu_s: float, timed_s: float) -> dict[str, Any]:
        """None."""
        return {}

    def held_bytes(self, handle: RunnerHandle) -> int:
        """That of the host."""
        return self._host.held_bytes(handle)

    def has_foreign_code(self, candidate: RunnerHandle, reference: RunnerHandle) -> bool:
        """Whether it has mapped executable files of its own making."""
        return self._host.has_foreign_code(candidate, reference)

    def own_code(
        self, candidate: RunnerHandle, inputs: InputSet, rng: Random, *, call_s: float, timeout_s: float, brief: bool
    ) -> OwnCode:
        """Unknown: nothing is timed."""
        return OwnCode()

    def repeated_call_s(
        self, handle: RunnerHandle, inputs: InputSet, *, call_s: float, timeout_s: float
    ) -> float | None:
        """None: nothing is timed."""
        return None

    def cache_bytes(self) -> int:
        """None that counts."""
        return 0

    def peaks(self, pool: RunnerPool, traffic: Traffic, dtypes: Sequence[str], *, again: bool) -> Peaks:
        """None: there is no device.

        Raises:
            RunnerFailed: always.
        """
        raise RunnerFailed("error", "there is no GPU to measure")

    def device_figures(self, pool: RunnerPool) -> dict[str, Any]:
        """None: there is no device."""
        return {}

    def limit_facts(self) -> dict[str, Any]:
        """None."""
        return {}

    def versions(self) -> Mapping[str, str | None]:
        """Those of the host, where all runs."""
        return self._host.versions()

    def screen(
        self,
        pool: RunnerPool,
        reference: RunnerHandle,
        candidate: RunnerHandle,
        evidence: Evidence,
        start_candidate: Callable[[], RunnerHandle],
    ) -> Screening:
        """See `screening.screen`."""
        return screening.screen(self._language, pool, reference, candidate, evidence, start_candidate)

    def examine_source_kernel(self, pool: RunnerPool, reference: RunnerHandle) -> Screening:
        """See `source_kernel.examine`."""
        return source_kernel.examine(pool, reference)

    def explain(
        self, pool: RunnerPool, finding: Finding, start_candidate: Callable[[], RunnerHandle]
    ) -> tuple[Finding, Screening]:
        """See `screening.explain`."""
        return screening.explain(self._language, pool, finding, start_candidate)

    def profile(self, pool: RunnerPool) -> dict[str, Any]:
        """What the launches of one call are, and what making them again has shown."""
        start = time.perf_counter()
        found: dict[str, Any] = {"absent": {}}
        try:
            reference = pool.start_reference()
            input_supply.fit_inputs(pool, reference)
            inputs = [input_supply.make_inputs(pool, reference) for _ in range(screening.RECORDED_CALLS)]
            candidate = pool.start_model("candidate", pool.request.candidate_source, "ModelNew")
            found["screening"] = self._language.observe(pool, candidate, inputs).facts
        except (Finding, RunnerFailed) as failure:
            found["absent"] = {"screening": untrusted.text(failure.message, 200)}
        finally:
            pool.stop_all()
        return {**found, "cost_s": {"total": round(time.perf_counter() - start, 3)}}
