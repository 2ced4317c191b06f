"""The platform that a request names."""

from .base import Platform


def load_platform(name: str, device: int) -> Platform:
    """The referee's half of a platform.

    Args:
        name: the platform that the request names.
        device: which of the host's devices of this platform, counted from 0.

    Raises:
        ValueError: there is none of that name.
    """
    if name == "cpu":
        from .cpu.platform import CpuPlatform

        return CpuPlatform(device)
    if name == "simulated":
        from .simulated import SimulatedPlatform

        return SimulatedPlatform(device)
    if name in ("riscv", "arm64"):
        from ..protocol import instructions
        from .emulated import EmulatedPlatform

        widest = instructions.RISCV if name == "riscv" else instructions.ARM64
        return EmulatedPlatform(name, widest, device)
    if name == "cuda":
        from .screened.cuda import Cuda
        from .screened.platform import ScreenedPlatform

        return ScreenedPlatform(name, Cuda(), device)
    if name == "triton":
        from .screened.platform import ScreenedPlatform
        from .screened.triton import Triton

        return ScreenedPlatform(name, Triton(), device)
    if name == "opencl":
        from .opencl import OpenclPlatform

        return OpenclPlatform(device)
    raise ValueError(f"platform: unknown {name!r}")
