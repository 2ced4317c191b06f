"""Whether a GPU is there: the one place where the host looks."""

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

from evaluator.referee.protocol.nvml import LIBRARY, Gpu, NvmlError, opened

_LOOKED_INTO = tuple(
    f"{root}{folder}"
    for root in ("", "/usr")
    for folder in ("/lib64", "/lib", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu")
)
"""By the dynamic linker, without a list (ld.so(8))."""

Look = Callable[[int], Gpu | None]


def gpu_at(index: int, *, library: str = LIBRARY) -> Gpu | None:
    """The GPU of an index, in the order of the bus; None where no NVIDIA driver answers for it.

    A look takes a fraction of a millisecond where the library is not installed.

    Args:
        index: counted from 0.
        library: NVML's, which comes with the driver.
    """
    try:
        with opened(library) as nvml:
            return nvml.at(index) if 0 <= index < nvml.count() else None
    except NvmlError:
        return None


def library_folders(*, library: str = LIBRARY, known: Path = Path("/etc/ld.so.cache")) -> tuple[str, ...]:
    """The folder of the driver's libraries, if this process finds it only because its environment names it.

    Args:
        library: NVML's. CUDA's lies beside it.
        known: the dynamic linker's list of libraries (ldconfig(8)).
    """
    try:
        ctypes.CDLL(library)
    except OSError:
        return ()
    name = Path(library).name
    if any(place.is_file() for place in [*_listed(name, known), *(Path(folder) / name for folder in _LOOKED_INTO)]):
        return ()
    mapped = re.findall(rf"(/\S*)/{re.escape(name)}[\w.]*$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return tuple(dict.fromkeys(mapped))


def _listed(name: str, known: Path) -> list[Path]:
    try:
        body = known.read_bytes()
    except OSError:
        return []
    return [Path(path.decode()) for path in re.findall(rb"(/[^\0]*/" + re.escape(name.encode()) + rb")\0", body)]


def facts_of(gpu: Gpu) -> dict[str, str]:
    """What identifies a class of GPUs whose times are comparable."""
    facts = {
        "timed": "on the device",
        "compute capability": gpu.compute_capability,
        "memory": f"{gpu.memory_bytes / (1 << 30):.0f} GiB",
    }
    if gpu.max_clock_mhz is not None and gpu.max_memory_clock_mhz is not None:
        facts["highest clocks"] = f"{gpu.max_clock_mhz} MHz, memory {gpu.max_memory_clock_mhz} MHz"
    if gpu.power_limit_w is not None:
        facts["power limit"] = f"{gpu.power_limit_w:.0f} W"
    if gpu.partitioned:
        facts["partitioned"] = "yes (MIG)"
    return facts


def provenance_of(gpu: Gpu) -> dict[str, str | None]:
    """What else a time on a GPU depends on."""
    words = {True: "on", False: "off", None: None}
    return {
        "gpu_uuid": gpu.uuid,
        "gpu_driver": gpu.driver,
        "gpu_persistence_mode": words[gpu.persistent],
        "gpu_ecc": words[gpu.ecc],
    }


def nodes_of(gpu: Gpu) -> tuple[str, ...]:
    """The device files that a process needs for computing on a GPU."""
    own = () if gpu.minor is None else (f"/dev/nvidia{gpu.minor}",)
    return ("/dev/nvidiactl", "/dev/nvidia-uvm", *own)
