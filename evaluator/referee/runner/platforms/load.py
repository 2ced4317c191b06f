"""The runner's half of the platform of a given name. Importing this module imports no torch."""

from .base import PlatformImports, RunnerPlatform


def load_imports(name: str) -> PlatformImports:
    """What a platform does before anything foreign is loaded.

    Raises:
        ValueError: there is no platform of that name.
    """
    if name == "cpu":
        from .cpu.imports import CpuImports

        return CpuImports()
    if name == "simulated":
        from .simulated.imports import SimulatedImports

        return SimulatedImports()
    raise ValueError(f"platform: unknown {name!r}")


def load_runner_platform(name: str) -> RunnerPlatform:
    """The platform inside a runner; torch is imported.

    Raises:
        ValueError: there is none of that name.
    """
    if name == "cpu":
        from .cpu.platform import CpuRunner

        return CpuRunner()
    if name == "simulated":
        from .simulated.platform import SimulatedRunner

        return SimulatedRunner()
    raise ValueError(f"platform: unknown {name!r}")
