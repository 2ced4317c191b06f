"""One folder a platform: what is particular to a language on a kind of device."""

from evaluator.platforms.arm64.platform import ARM64
from evaluator.platforms.base import Device, Platform, PromptFiles
from evaluator.platforms.cpu.platform import CpuPlatform
from evaluator.platforms.cuda.platform import CudaPlatform
from evaluator.platforms.gpu.platform import on_device
from evaluator.platforms.hip.platform import HipPlatform
from evaluator.platforms.opencl.platform import OpenclPlatform
from evaluator.platforms.riscv.platform import RISCV
from evaluator.platforms.simulated.platform import SimulatedPlatform
from evaluator.platforms.triton.platform import TritonPlatform

__all__ = [
    "OF_NVIDIA",
    "PLATFORM_NAMES",
    "SCREENED",
    "Device",
    "Platform",
    "PromptFiles",
    "load_platform",
    "proves",
    "screening_platform",
]

PLATFORM_NAMES = ("cpu", "simulated", "riscv", "arm64", "cuda", "opencl", "triton", "hip")


SCREENED = ("cuda", "triton", "hip")
"""Those whose candidates are screened where there is no device."""

OF_NVIDIA = ("cuda", "triton")
"""Those whose devices are looked for: where a GPU is, candidates run and are timed on it."""


def load_platform(name: str, device: int = 0) -> Platform:
    """The platform of that name, as it is on a device of this host: those for GPUs time only where one is there.

    Args:
        name: the platform.
        device: which of the host's devices of this platform, counted from 0.

    Raises:
        KeyError: there is none; the text lists those that exist.
    """
    if name == "cpu":
        return CpuPlatform()
    if name == "simulated":
        return SimulatedPlatform()
    if name == "riscv":
        return RISCV
    if name == "arm64":
        return ARM64
    if name == "opencl":
        return OpenclPlatform()
    if name in SCREENED:
        screened = screening_platform(name)
        return on_device(screened, device) if name in OF_NVIDIA else screened
    raise KeyError(f"platform: unknown {name!r}; this version knows {', '.join(PLATFORM_NAMES)}")


def screening_platform(name: str) -> Platform:
    """A platform of `SCREENED` as it is without a device, whatever this host has.

    Raises:
        KeyError: no platform of that name screens.
    """
    if name == "cuda":
        return CudaPlatform()
    if name == "triton":
        return TritonPlatform()
    if name == "hip":
        return HipPlatform()
    raise KeyError(f"platform: {name!r} does not screen; {' and '.join(SCREENED)} do")


def proves(platform: Platform, device: int = 0) -> str:
    """What a verdict on a device proves, in a few words."""
    if platform.timed == "nothing":
        return "screened, not timed"
    if platform.timed != "wall":
        return f"counted: {platform.timed}"
    return "timed" if platform.part == platform.name else f"timed on GPU {platform.device(device).name}"
