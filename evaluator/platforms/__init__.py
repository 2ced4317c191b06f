"""One folder a platform: what is particular to a language on a kind of device."""

from evaluator.platforms.base import Device, Platform, PromptFiles
from evaluator.platforms.cpu.platform import CpuPlatform
from evaluator.platforms.cuda.platform import CudaPlatform
from evaluator.platforms.gpu.platform import on_device
from evaluator.platforms.opencl.platform import OpenclPlatform
from evaluator.platforms.riscv.platform import RiscvPlatform
from evaluator.platforms.simulated.platform import SimulatedPlatform
from evaluator.platforms.triton.platform import TritonPlatform

__all__ = ["PLATFORM_NAMES", "Device", "Platform", "PromptFiles", "load_platform", "proves", "without_device"]

PLATFORM_NAMES = ("cpu", "simulated", "riscv", "cuda", "opencl", "triton")


_ON_GPUS = ("cuda", "triton")  # of NVIDIA


def load_platform(name: str, device: int = 0) -> Platform:
    """The platform of that name, as it is on a device of this host: those for GPUs time only where one is there.

    Args:
        name: the platform.
        device: which of the host's devices of this platform, counted from 0.

    Raises:
        KeyError: there is none; the text lists those that exist.
    """
    platform = without_device(name)
    return on_device(platform, device) if name in _ON_GPUS else platform


def without_device(name: str) -> Platform:
    """The platform of that name, as it is on a host without its device.

    Raises:
        KeyError: there is none; the text lists those that exist.
    """
    if name == "cpu":
        return CpuPlatform()
    if name == "simulated":
        return SimulatedPlatform()
    if name == "riscv":
        return RiscvPlatform()
    if name == "cuda":
        return CudaPlatform()
    if name == "opencl":
        return OpenclPlatform()
    if name == "triton":
        return TritonPlatform()
    raise KeyError(f"platform: unknown {name!r}; this version knows {', '.join(PLATFORM_NAMES)}")


def proves(platform: Platform, device: int = 0) -> str:
    """What a verdict on a device proves, in a few words."""
    if platform.timed == "nothing":
        return "screened, not timed"
    if platform.timed != "wall":
        return f"counted: {platform.timed}"
    return "timed" if platform.part == platform.name else f"timed on GPU {platform.device(device).name}"
