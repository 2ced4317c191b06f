"""Platform `opencl`, as the referee meets it: PoCL on this machine's processor, in the candidate's own process.

PoCL's threads, kernels and memory are those of the process that calls it. So clock, account, inputs and outputs are
those of `CpuPlatform`: the clock runs until all of the candidate's threads have been seen to stop, and outputs are read
out of the stopped process. What a candidate left in a queue is not done then.
"""

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from random import Random

from ..isolation.calls import InputSet
from ..isolation.handle import RunnerHandle
from .base import OwnCode
from .cpu import code_sampling
from .cpu.platform import CpuPlatform


class OpenclPlatform:
    """OpenCL C on this machine's processor. See `base.Platform`."""

    name = "opencl"
    timed = "wall"

    def __init__(self, device: int) -> None:
        host = CpuPlatform(device)
        self.device = device
        self.resolution, self.set_sd, self.rotation_bytes = host.resolution, host.set_sd, host.rotation_bytes
        self.most_work = host.most_work
        self.open, self.plan, self.set_state, self.handover_s = host.open, host.plan, host.set_state, host.handover_s
        self.address_space_bytes, self.held_bytes = host.address_space_bytes, host.held_bytes
        self.account, self.interference_meter = host.account, host.interference_meter
        self.input_buffer, self.call, self.repeated_call_s = host.input_buffer, host.call, host.repeated_call_s
        self.read, self.flip, self.places = host.read, host.flip, host.places
        self.begin_timing, self.beside_calls = host.begin_timing, host.beside_calls
        self.cache_bytes, self.cache_scrubber = host.cache_bytes, host.cache_scrubber
        self.disturbance, self.is_disturbed, self.usage_facts = host.disturbance, host.is_disturbed, host.usage_facts
        self.peaks, self.device_figures, self.limit_facts = host.peaks, host.device_figures, host.limit_facts
        self.screen, self.explain, self.profile = host.screen, host.explain, host.profile
        self.examine_source_kernel = host.examine_source_kernel
        self._host_versions = host.versions

    def versions(self) -> Mapping[str, str | None]:
        """Those of the host, of PoCL and of pyopencl."""
        return {**self._host_versions(), **_versions()}

    def has_foreign_code(self, candidate: RunnerHandle, reference: RunnerHandle) -> bool:
        """Whether it has mapped a kernel that PoCL has built for it."""
        return code_sampling.has_own_code(candidate, reference, _kernels(candidate))

    def own_code(
        self, candidate: RunnerHandle, inputs: InputSet, rng: Random, *, call_s: float, timeout_s: float, brief: bool
    ) -> OwnCode:
        """See `code_sampling.own_code`: PoCL's kernels are its own, and no other native code is."""
        return code_sampling.own_code(
            candidate, inputs, rng, call_s=call_s, timeout_s=timeout_s, brief=brief, kernels=_kernels(candidate)
        )


def _kernels(candidate: RunnerHandle) -> str:
    """The folder that PoCL keeps a candidate's kernels in."""
    return f"{candidate.home}/built/pocl/"


def _versions() -> dict[str, str | None]:
    """The versions of Debian's package of PoCL and of pyopencl; None: it is not installed."""
    found: dict[str, str | None] = {"pocl": None, "pyopencl": None}
    with suppress(OSError, subprocess.SubprocessError):
        asked = ("dpkg-query", "-W", "-f=${Version}", "pocl-opencl-icd")
        found["pocl"] = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout[:200]
    with suppress(PackageNotFoundError):
        found["pyopencl"] = version("pyopencl")
    return found
