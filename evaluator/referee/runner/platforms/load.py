"""The runner's half of the platform of a given name. Importing this module imports no torch."""

from ...protocol.gpu_checks import gpu_of
from .base import PlatformImports, RunnerPlatform


def load_imports(name: str) -> PlatformImports:
    """What a platform does before anything foreign is loaded.

    Raises:
        ValueError: there is no platform of that name.
    """
    language, uuid = gpu_of(name)
    if uuid and language in ("cuda", "triton"):
        from .on_gpu.imports import OnGpuImports

        return OnGpuImports(uuid)
    if name == "cpu":
        from .cpu.imports import CpuImports

        return CpuImports()
    if name == "simulated":
        from .simulated.imports import SimulatedImports

        return SimulatedImports()
    if name == "riscv":
        from .emulated.imports import EmulatedImports
        from .riscv.instruction_table import INSTRUCTION_TABLE

        return EmulatedImports(INSTRUCTION_TABLE)
    if name == "arm64":
        from .arm64.instruction_table import INSTRUCTION_TABLE as ARM64_TABLE
        from .emulated.imports import EmulatedImports

        return EmulatedImports(ARM64_TABLE)
    if name == "cuda":
        from .cuda.imports import CudaImports

        return CudaImports()
    if name == "opencl":
        from .opencl.imports import OpenclImports

        return OpenclImports()
    if name == "triton":
        from .triton.imports import TritonImports

        return TritonImports()
    if name == "hip":
        from .hip.imports import HipImports

        return HipImports()
    raise ValueError(f"platform: unknown {name!r}")


def load_runner_platform(name: str) -> RunnerPlatform:
    """The platform inside a runner; torch is imported.

    Raises:
        ValueError: there is none of that name.
    """
    language, uuid = gpu_of(name)
    if uuid and language in ("cuda", "triton"):
        from .on_gpu.platform import OnGpuRunner

        return OnGpuRunner()
    if name == "cpu":
        from .cpu.platform import CpuRunner

        return CpuRunner()
    if name == "simulated":
        from .simulated.platform import SimulatedRunner

        return SimulatedRunner()
    if name == "riscv":
        from .emulated.platform import EmulatedRunner
        from .riscv.instruction_set import RISCV
        from .riscv.instruction_table import INSTRUCTION_TABLE

        return EmulatedRunner(RISCV, INSTRUCTION_TABLE)
    if name == "arm64":
        from .arm64.instruction_set import ARM64
        from .arm64.instruction_table import INSTRUCTION_TABLE as ARM64_TABLE
        from .emulated.platform import EmulatedRunner

        return EmulatedRunner(ARM64, ARM64_TABLE)
    if name == "cuda":
        from .cuda.platform import CudaRunner

        return CudaRunner()
    if name == "opencl":
        from .opencl.platform import OpenclRunner

        return OpenclRunner()
    if name == "triton":
        from .triton.platform import TritonRunner

        return TritonRunner()
    if name == "hip":
        from .hip.platform import hip_runner

        return hip_runner()
    raise ValueError(f"platform: unknown {name!r}")
