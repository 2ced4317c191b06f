"""One folder a platform: what is particular to a language on a kind of device."""

from evaluator.platforms.arm64.platform import ARM64
from evaluator.platforms.base import Device, Platform, PromptFiles
from evaluator.platforms.cpu.platform import CpuPlatform
from evaluator.platforms.cuda.platform import CudaPlatform
from evaluator.platforms.opencl.platform import OpenclPlatform
from evaluator.platforms.riscv.platform import RISCV
from evaluator.platforms.simulated.platform import SimulatedPlatform
from evaluator.platforms.triton.platform import TritonPlatform

__all__ = ["PLATFORM_NAMES", "Device", "Platform", "PromptFiles", "load_platform"]

PLATFORM_NAMES = ("cpu", "simulated", "riscv", "arm64", "cuda", "opencl", "triton")


def load_platform(name: str) -> Platform:
    """The platform of that name.

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
    if name == "cuda":
        return CudaPlatform()
    if name == "opencl":
        return OpenclPlatform()
    if name == "triton":
        return TritonPlatform()
    raise KeyError(f"platform: unknown {name!r}; this version knows {', '.join(PLATFORM_NAMES)}")
