"""Platform `cpu`: C++ with OpenMP on this host's processor."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.platforms.base import Device, PromptFiles
from evaluator.platforms.cpu.device_text import device_text, sharing_cores
from evaluator.platforms.cpu.image import RECIPE
from evaluator.platforms.cpu.profile_text import detail_lines, fit, wrapped
from evaluator.referee.platforms.cpu.proc_stat import busy_s
from evaluator.referee.protocol.baselines import BASELINES
from sandbox.base import Devices
from sandbox.image.recipe import ImageRecipe
from sandbox.process.programs import HostPackage, HostProgram

_SHOWN_LOAD = 0.25  # cores that others kept busy; from more on the referee calls figures noisy
_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_VECTOR_FLAGS = ("avx", "avx2", "fma", "avx512f", "avx512bw", "avx512_bf16", "amx_tile", "asimd", "sve")


@dataclass(frozen=True)
class CpuPlatform:
    """C++/OpenMP on a CPU."""

    name: str = "cpu"
    part: str = "cpu"
    language: str = "C++17 with OpenMP, compiled by g++"
    timed: str = "wall"
    baselines: tuple[str, ...] = tuple(BASELINES)
    measurable: bool = True

    def device(self, index: int = 0) -> Device:
        """Processor, cores, vector extensions, caches and memory, read from /proc and /sys."""
        cores = len(os.sched_getaffinity(0))
        model, flags = _processor(_CPUINFO.read_text())
        facts = {
            "cores": str(cores),
            "vector extensions": " ".join(flag for flag in _VECTOR_FLAGS if flag in flags) or "none known",
            "caches": _caches(),
            "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        }
        return Device(self.name, f"{model}, {cores} core{'s' if cores != 1 else ''}", facts, index)

    def device_text(self, device: Device, figures: Mapping[str, Any]) -> str:
        """See `device_text.device_text`."""
        _, flags = _processor(_CPUINFO.read_text())
        return device_text(device, flags, sharing_cores(), figures)

    def image(self) -> ImageRecipe:
        """The files in `image/`."""
        return RECIPE

    def host_programs(self) -> tuple[HostProgram, ...]:
        """A compiler, and what torch's own ways to build call."""
        return (
            HostProgram("g++", "builds kernels in the process sandbox", "apt-get install g++", required=True),
            HostProgram("ninja", "builds load_inline extensions in the process sandbox", "apt-get install ninja-build"),
            HostProgram("openssl", "TorchInductor hashes headers with it", "apt-get install openssl"),
        )

    def host_packages(self) -> tuple[HostPackage, ...]:
        """None."""
        return ()

    def sandbox_devices(self, index: int) -> Devices:
        """None: the processor is there in every sandbox."""
        return Devices()

    def exclusive_resources(self, index: int) -> tuple[str, ...]:
        """The cores that runners are timed on. An index stands for a share of them that its workers may use."""
        return (f"host-cores-{index}",)

    def load(self, wait: Callable[[], object]) -> float | None:
        """As /proc/stat counts all cores, stolen time included; in a container the whole machine's."""
        start, before = time.monotonic(), busy_s()
        wait()
        after, wall_s = busy_s(), time.monotonic() - start
        return None if before is None or after is None or wall_s <= 0 else max(0.0, after - before) / wall_s

    def prompts(self) -> PromptFiles:
        """The texts in `prompts/`; the built-in compiler writes C++ with OpenMP."""
        return PromptFiles(Path(__file__).parent / "prompts", default_category="normalization", seeds=("compiler",))

    def provenance(self, index: int) -> Mapping[str, str | None]:
        """Microcode and flags of the processor."""
        return microcode_and_flags()

    def requirements_text(self) -> str:
        """A candidate compiles its C++ when it is imported."""
        return "PyTorch and, for C++ kernels, g++"

    def builds_slowly(self, candidate_source: str) -> bool:
        """Whether torch's headers come into it. Plain g++ takes a second; torch.compile works at the first call."""
        return any(word in candidate_source for word in ("load_inline", "cpp_extension"))

    def profile_text(self, profile: dict[str, Any]) -> str:
        """The referee's figures, then the detailed profile if there is one; at most 60 lines of 100 columns.

        `(claimed)` marks what the candidate's own process said.
        """
        rows = (
            ("bytes that the reference touches", "bytes_moved_min", "{:,} B"),
            ("achieved bandwidth", "achieved_gb_per_s", "{} GB/s"),
            ("measured peak bandwidth, reading", "peak_read_gb_per_s", "{} GB/s"),
            ("measured peak bandwidth, writing", "peak_write_gb_per_s", "{} GB/s"),
            ("measured peak bandwidth, copying", "peak_copy_gb_per_s", "{} GB/s"),
            ("the same from the caches, reading", "peak_cached_read_gb_per_s", "{} GB/s"),
            ("the same into the caches, writing", "peak_cached_write_gb_per_s", "{} GB/s"),
            ("floating-point operations", "flops", "{:,} FLOP (at least; arithmetic of every kind)"),
            ("achieved compute", "achieved_gflop_per_s", "{} GFLOP/s"),
            ("measured peak compute", "peak_gflop_per_s", "{} GFLOP/s"),
            ("cores kept busy", "cpu_utilization_cores", "{}"),
            ("cores that other programs kept busy", "others_cores_busy", "{} (peaks, times and rates suffer)"),
            ("page faults a call", "page_faults_per_call", "{}"),
            ("output", "output_bytes", "{:,} B"),
        )
        detail = profile.get("detail") or {}
        left_out = {"page_faults_per_call"} if "calls" in detail else set()  # the detail has them more exactly
        if (profile.get("others_cores_busy") or 0.0) < _SHOWN_LOAD:
            left_out.add("others_cores_busy")
        lines = [
            f"{label}: {form.format(profile[key])}"
            for label, key, form in rows
            if key not in left_out and profile.get(key) is not None
        ]
        if note := profile.get("roofline_note"):
            lines += wrapped(f"roofline: {note}")
        if "operators" not in detail:
            operators = profile.get("torch_operators_claimed") or []
            lines += [f"torch operator (claimed): {name} {share:.0%}" for name, share in operators]
        return fit([*lines, *detail_lines(detail)])


def _processor(cpuinfo: str) -> tuple[str, set[str]]:
    model, flags = "unknown processor", set[str]()
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
        elif key.strip() in ("flags", "Features"):
            flags = set(value.split())
    return model, flags


def microcode_and_flags(cpuinfo: Path = _CPUINFO) -> dict[str, str | None]:
    """Microcode and flags of the first processor, as the kernel lists them; None where it does not."""
    found: dict[str, str | None] = {"microcode": None, "flags": None}
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        key, _, value = line.partition(":")
        name = {"microcode": "microcode", "flags": "flags", "Features": "flags"}.get(key.strip())
        if name is not None and found[name] is None:
            found[name] = " ".join(sorted(value.split()))
    return found


def _caches() -> str:
    found = []
    for index in sorted(_CACHES.glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found) or "unknown"
