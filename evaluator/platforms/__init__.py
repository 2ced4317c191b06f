"""One folder a platform: what is particular to a language on a kind of device."""

from evaluator.platforms.base import Device, Platform, PromptFiles
from evaluator.platforms.cpu.platform import CpuPlatform
from evaluator.platforms.cuda.platform import CudaPlatform
from evaluator.platforms.hip.platform import HipPlatform
from evaluator.platforms.opencl.platform import OpenclPlatform
from evaluator.platforms.riscv.platform import RiscvPlatform
from evaluator.platforms.simulated.platform import SimulatedPlatform
from evaluator.platforms.triton.platform import TritonPlatform

__all__ = ["PLATFORM_NAMES", "Device", "Platform", "PromptFiles", "load_platform"]

PLATFORM_NAMES = ("cpu", "simulated", "riscv", "cuda", "opencl", "triton", "hip")


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
        return RiscvPlatform()
    if name == "cuda":
        return CudaPlatform()
    if name == "opencl":
        return OpenclPlatform()
    if name == "triton":
        return TritonPlatform()
    if name == "hip":
        return HipPlatform()
    raise KeyError(f"platform: unknown {name!r}; this version knows {', '.join(PLATFORM_NAMES)}")
