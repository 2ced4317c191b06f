"""What compilers have made of the candidate's kernels: registers, spills, shared memory."""

import gc
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from .....protocol.gpu_checks import triton_package
from . import programs

_MOST_KERNELS = 100
_MOST_LIBRARIES = 6
_LIBRARY_BYTES = 256 * 1024 * 1024
_FATBIN = b".nv_fatbin"  # the section of a library that holds code for GPUs
_TIMEOUT_S = 20.0


def of_triton() -> list[list[Any]]:
    """Of each kernel that Triton has compiled and loaded: name, registers, spilled words, shared bytes, warps, stages.

    They are found among the objects of this process, because kernels are held by their functions, by autotuners and by
    what torch.compile has generated. What a version of Triton does not tell is None.
    """
    module = sys.modules.get("triton.compiler.compiler")
    kind = getattr(module, "CompiledKernel", None)
    found = [row_of(each) for each in gc.get_objects() if kind is not None and type(each) is kind]
    unique = {tuple(row): row for row in found if row[1] is not None}  # one that is not loaded has not run
    return list(unique.values())[:_MOST_KERNELS]


def row_of(kernel: Any) -> list[Any]:
    """The figures of one of Triton's compiled kernels. A word is 4 bytes (`driver.c` of its backend for NVIDIA)."""
    metadata = kernel.metadata
    told = [getattr(kernel, "n_regs", None), getattr(kernel, "n_spills", None)]
    told += [getattr(metadata, name, None) for name in ("shared", "num_warps", "num_stages")]
    return [str(kernel.name)[:200], *told]


def own_libraries(home: Path, maps: str) -> list[Path]:
    """The libraries with code for GPUs that are mapped (`maps` as in proc(5)) and lie in the candidate's folder."""
    home = home.resolve()
    paths = {Path(line.split(maxsplit=5)[5]) for line in maps.splitlines() if len(line.split(maxsplit=5)) == 6}
    return sorted(path for path in paths if path.is_relative_to(home) and _has_device_code(path))[:_MOST_LIBRARIES]


def _has_device_code(path: Path) -> bool:
    try:
        return path.stat().st_size <= _LIBRARY_BYTES and _FATBIN in path.read_bytes()
    except OSError:
        return False


def of_libraries(home: Path, folder: Path) -> dict[str, Any]:
    """What `cuobjdump --dump-resource-usage` says of the candidate's own libraries, with names as they are written.

    `libraries` says how many there are, `found` whether the program is there.
    """
    libraries = own_libraries(home, Path("/proc/self/maps").read_text())
    program = _cuobjdump() if libraries else None
    said = ""
    if program is not None:
        for path in libraries:
            words = [program, "--dump-resource-usage", str(path)]
            said += programs.run(words, folder, timeout_s=_TIMEOUT_S).log + "\n"
    return {"libraries": len(libraries), "found": program is not None, "usage": _readable(said)[: programs.LOG_BYTES]}


def _cuobjdump() -> str | None:
    """That of NVIDIA's toolkit, or the one that Triton brings."""
    if (program := programs.find("cuobjdump")) is not None:
        return program
    package = triton_package()
    return None if package is None else shutil.which("cuobjdump", path=str(package / "backends" / "nvidia" / "bin"))


def _readable(text: str) -> str:
    """The text with C++'s names as they are written, where c++filt is installed."""
    try:
        done = subprocess.run(["c++filt"], input=text, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return text
    return done.stdout if done.returncode == 0 else text
