"""One folder a platform: what is particular to a language on a kind of device."""

from evaluator.platforms.base import Device, Platform, PromptFiles
from evaluator.platforms.cpu.platform import CpuPlatform
from evaluator.platforms.simulated.platform import SimulatedPlatform

__all__ = ["PLATFORM_NAMES", "Device", "Platform", "PromptFiles", "load_platform"]

PLATFORM_NAMES = ("cpu", "simulated")


def load_platform(name: str) -> Platform:
    """The platform of that name.

    Raises:
        KeyError: there is none; the text lists those that exist.
    """
    if name == "cpu":
        return CpuPlatform()
    if name == "simulated":
        return SimulatedPlatform()
    raise KeyError(f"platform: unknown {name!r}; this version knows {', '.join(PLATFORM_NAMES)}")
