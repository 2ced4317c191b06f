"""The platform that a request names."""

from ..protocol.gpu_checks import gpu_of
from .base import Platform


def load_platform(name: str, device: int) -> Platform:
    """The referee's half of a platform: of one for GPUs, the part that times where the name says which GPU there is.

    Args:
        name: the platform that the request names.
        device: which of the host's devices of this platform, counted from 0.

    Raises:
        ValueError: there is none of that name.
    """
    language, uuid = gpu_of(name)
    if uuid and language in ("cuda", "triton"):
        from .gpu.platform import GpuPlatform

        return GpuPlatform(language, uuid, device)
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
    if name in ("cuda", "hip"):
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
