"""Compiles kernels for AMD's GPUs by clang 19, as Debian has it: no ROCm, no GPU and no driver is needed.

Of ROCm's headers and device library nothing is used: `device/hip_for_clang.h` has what kernels call. What clang prints
is for people and models; whether an architecture compiles is what counts.
"""

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..cuda import records, source
from ..cuda.nvrtc import Given
from ..gpu.machine_code import Compiled, count_kinds, demangled

_COMPILER = "clang-19"
_HERE = Path(__file__).parent
_WORDS = (
    "-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-nostdinc", "-std=c++20", "-O3", "-w",
    "-ferror-limit=8", "-fno-color-diagnostics", "-Rpass-analysis=kernel-resource-usage", f"-I{_HERE / 'device'}",
    f"-I{_HERE / 'include'}", "-S",
)  # fmt: skip
_MAX_LOG = 3000
_TIMEOUT_S = 120.0
LDS_BYTES = 64 << 10
"""The most local data share that a block can have, on every architecture so far."""

_SIMDS, _MOST_WAVES = "simds", "waves"
_UNITS: tuple[tuple[re.Pattern[str], Mapping[str, int]], ...] = (
    (re.compile("gfx90a|gfx94."), {_SIMDS: 4, _MOST_WAVES: 8}),
    (re.compile("gfx90."), {_SIMDS: 4, _MOST_WAVES: 10}),
    (re.compile("gfx10[12]."), {_SIMDS: 2, _MOST_WAVES: 20}),
    (re.compile("gfx1[0-9]{3}"), {_SIMDS: 2, _MOST_WAVES: 16}),
)
"""SIMDs of a compute unit, and wavefronts that one of them holds at most (LLVM, AMDGPUUsage and AMDGPUBaseInfo)."""

_REMARK = re.compile(r"remark: +(?P<what>[\w ]+?)(?: \[[^]]*\])?: (?P<value>\S+) \[-Rpass-analysis")
_NAMED = {
    "VGPRs": "vgprs", "SGPRs": "sgprs", "AGPRs": "agprs", "ScratchSize": "stack_bytes", "Occupancy": "waves",
    "SGPRs Spill": "sgpr_spills", "VGPRs Spill": "vgpr_spills", "LDS Size": "shared_bytes",
}  # fmt: skip

_KINDS = (
    ("matrix cores", re.compile(r"v_(?:mfma|smfmac|wmma|swmmac)_")),
    ("vector loads", re.compile(r"(?:global|flat|buffer)_load_(?:dwordx|b64|b96|b128)")),
    ("scalar loads", re.compile(r"(?:global|flat|buffer)_load_")),
    ("vector stores", re.compile(r"(?:global|flat|buffer)_store_(?:dwordx|b64|b96|b128)")),
    ("scalar stores", re.compile(r"(?:global|flat|buffer)_store_")),
    ("uniform loads", re.compile(r"s_(?:buffer_)?load_")),
    ("local memory", re.compile(r"scratch_")),
    ("lane exchanges", re.compile(r"ds_(?:b?permute|swizzle)|v_permlane|v_readlane|v_writelane|v_mov_b32_dpp")),
    ("shared memory", re.compile(r"ds_")),
    ("barriers", re.compile(r"s_barrier")),
    ("special functions", re.compile(r"v_(?:exp|log|rcp|rsq|sqrt|sin|cos)_")),
    ("fused multiply-add", re.compile(r"v_(?:pk_)?(?:fma|fmac|dual_fmac|mad|mac)")),
    ("branches", re.compile(r"s_(?:c?branch)")),
)


def text_for(sources: Sequence[Given], kernels: Sequence[str]) -> str:
    """The kernels of all sources as one program for a GPU, with the instances of templates that are named.

    Raises:
        source.SourceError: a source cannot be read.
    """
    parts = ['#include "hip_for_clang.h"\n']
    for number, given in enumerate(sources):
        text = source.device_only(given.text)
        parts.append(f'#line 1 "cuda_sources{f"[{number}]" if number else ""}"\n{text}\n')
    # A function of the host that names a kernel has clang make it, as a launch would.
    named = "".join(f"  (void)&{name};\n" for name in kernels)
    parts.append(f'#line 1 "launches"\nvoid kernels_that_were_launched() {{\n{named}}}\n')
    return "".join(parts)


def compiled(
    sources: Sequence[Given], kernels: Sequence[str], launches: Sequence[records.Launch], architectures: Sequence[str]
) -> tuple[list[dict[str, Any]], str]:
    """What clang makes of the sources, by architecture; or why it was not asked."""
    if shutil.which(_COMPILER) is None:
        return [], "clang 19 is not installed (apt-get install clang-19)"
    try:
        text = text_for(sources, kernels)
    except source.SourceError as error:
        return [], f"clang could not be asked: {error}"
    with ThreadPoolExecutor(max(1, len(architectures))) as pool:
        made = list(pool.map(lambda each: compile_one(text, each), architectures))
    return [_with_launches(each, launches) for each in made], ""


def compile_one(text: str, architecture: str) -> Compiled:
    """Compile a program for one architecture."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        written, listing = Path(folder) / "kernels.hip", Path(folder) / "kernels.s"
        written.write_text(text)
        try:
            done = subprocess.run(
                [_COMPILER, *_WORDS, f"--offload-arch={architecture}", str(written), "-o", str(listing)],
                capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Compiled(architecture, f"error: no end within {_TIMEOUT_S:g} s", seconds=_TIMEOUT_S)
        seconds = round(time.perf_counter() - start, 3)
        if done.returncode != 0:
            said = errors_of(done.stderr) or f"error: clang ended with status {done.returncode}"
            return Compiled(architecture, said, seconds=seconds)
        return Compiled(architecture, "", tuple(resources(done.stderr)), kinds_of(listing.read_text()), seconds)


def errors_of(printed: str) -> str:
    """Clang's errors with their lines and carets, without its remarks."""
    kept: list[str] = []
    of_error = False
    for line in printed.splitlines():
        if re.search(r"(?:error|warning|note|remark): ", line):
            of_error = "error: " in line or ("note: " in line and of_error and "original source location" not in line)
        if of_error:
            kept.append(line)
    return "\n".join(kept)[:_MAX_LOG]


def resources(printed: str) -> list[dict[str, Any]]:
    """What clang's remarks say of each kernel: registers of each kind, spills, local data share, wavefronts a SIMD."""
    found: list[dict[str, Any]] = []
    for line in printed.splitlines():
        match = _REMARK.search(line)
        if match is None:
            continue
        if match["what"] == "Function Name":
            found.append({"kernel": demangled(match["value"])})
        elif found and match["what"] in _NAMED:
            found[-1][_NAMED[match["what"]]] = int(match["value"])
    return found


def kinds_of(listing: str) -> dict[str, int]:
    """How many instructions of each kind a listing has, and how many in all (without padding)."""
    line = re.compile(r"\t([a-z]+_[a-z0-9_]+)\b")
    return count_kinds(listing, line, padding=("s_nop", "s_code_end"), kinds=_KINDS)


def occupancy(architecture: str, waves: int, shared_bytes: int, threads: int) -> float | None:
    """The share of a SIMD's wavefronts that can be there at once; None for an architecture that is not known.

    Args:
        architecture: `gfx90a`.
        waves: wavefronts a SIMD that the kernel's registers leave room for.
        shared_bytes: the local data share of a block.
        threads: of a block.
    """
    units = next((units for pattern, units in _UNITS if pattern.fullmatch(architecture)), None)
    if units is None or threads < 1:
        return None
    of_block = -(-threads // (64 if architecture.startswith("gfx9") else 32))
    by_shared = LDS_BYTES // shared_bytes * of_block / units[_SIMDS] if shared_bytes else units[_MOST_WAVES]
    return round(min(waves, by_shared, units[_MOST_WAVES]) / units[_MOST_WAVES], 3)


def _with_launches(made: Compiled, launches: Sequence[records.Launch]) -> dict[str, Any]:
    """What was compiled, with the occupancy of each kernel's first launch. Too much shared memory is an error.

    Blocks of other sizes and dynamic shared memory are known of launches alone.
    """
    error = made.error
    for kernel in made.kernels:
        of_kernel = [one for one in launches if one.kernel == kernel["kernel"]]
        for one in of_kernel:
            shared = kernel.get("shared_bytes", 0) + one.dynamic_bytes
            if shared > LDS_BYTES:
                error = (
                    f"error: a launch of {one.kernel} takes {shared} bytes of shared memory; {LDS_BYTES} is the most"
                )
            if one is of_kernel[0]:
                kernel["occupancy"] = occupancy(made.architecture, kernel.get("waves", 0), shared, one.threads)
    return {**vars(made), "error": error, "kernels": list(made.kernels)}
