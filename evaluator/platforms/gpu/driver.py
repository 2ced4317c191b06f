"""Whether a GPU is there: the one place where the host looks."""

from collections.abc import Callable

from evaluator.referee.protocol.nvml import LIBRARY, Gpu, NvmlError, opened

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
