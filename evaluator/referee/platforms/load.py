"""The platform that a request names."""

from .base import Platform


def load_platform(name: str) -> Platform:
    """The referee's half of a platform.

    Raises:
        ValueError: there is none of that name.
    """
    if name == "cpu":
        from .cpu.platform import CpuPlatform

        return CpuPlatform()
    if name == "simulated":
        from .simulated import SimulatedPlatform

        return SimulatedPlatform()
    raise ValueError(f"platform: unknown {name!r}")
