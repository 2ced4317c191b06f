"""Platform `simulated`: programs of the array machine, a device that needs no hardware and whose clock is a count.

It proves the seam between the evaluator and its platforms, and lets agents be tried where nothing may disturb a
measurement. Its figures are cycles at a nominal rate of 1 GHz, never times.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.platforms.base import Device, PromptFiles
from evaluator.platforms.cpu.image import RECIPE
from evaluator.referee.protocol import cycles
from sandbox.base import Devices
from sandbox.image.recipe import ImageRecipe
from sandbox.process.programs import HostPackage, HostProgram

_WIDTH = 100


@dataclass(frozen=True)
class SimulatedPlatform:
    """The array machine. See `base.Platform`."""

    name: str = "simulated"
    part: str = "simulated"
    language: str = "Python that builds a program of the array machine (module `array_machine`)"
    timed: str = "cycles"
    baselines: tuple[str, ...] = ("eager",)
    measurable: bool = False

    def device(self, index: int = 0) -> Device:
        """The machine as `cycles` describes it."""
        facts = {
            "timed": "cycles, at a nominal rate of 1 GHz",
            "memory": f"{cycles.MEMORY_BYTES_PER_CYCLE} bytes a cycle",
            "lanes": f"{cycles.LANES} elements a cycle",
            "matrix products": f"{cycles.PRODUCT_FLOPS_PER_CYCLE} FLOP a cycle",
            "start of a program": f"{cycles.START_CYCLES} cycles",
        }
        return Device(self.name, "array machine", facts, index)

    def device_text(self, device: Device, figures: Mapping[str, Any]) -> str:
        """Its description says all."""
        return device.describe()

    def image(self) -> ImageRecipe:
        """That of platform `cpu`: the reference needs torch, the machine is a part of the referee."""
        return RECIPE

    def host_programs(self) -> tuple[HostProgram, ...]:
        """None: programs are data."""
        return ()

    def host_packages(self) -> tuple[HostPackage, ...]:
        """None."""
        return ()

    def sandbox_devices(self, index: int) -> Devices:
        """None: the machine is a part of the referee."""
        return Devices()

    def exclusive_resources(self, index: int) -> tuple[str, ...]:
        """None: a count is the same whatever else runs."""
        return ()

    def load(self, wait: Callable[[], object]) -> float | None:
        """None at all: nothing disturbs a count."""
        return 0.0

    def provenance(self, index: int) -> Mapping[str, str | None]:
        """Nothing beside the machine's description."""
        return {}

    def requirements_text(self) -> str:
        """Programs run nowhere but on the array machine."""
        return "Kernelwright's array machine (platform simulated)"

    def prompts(self) -> PromptFiles:
        """The texts in `prompts/`; no built-in model writes programs."""
        return PromptFiles(Path(__file__).parent / "prompts", default_category="normalization")

    def builds_slowly(self, candidate_source: str) -> bool:
        """Never: programs are not compiled."""
        return False

    def profile_text(self, profile: dict[str, Any]) -> str:
        """Cycles by instruction, the most expensive first."""
        counted = (profile.get("detail") or {}).get("cycles") or profile.get("cycles") or {}
        total = sum(counted.values()) or 1
        ordered = sorted(counted.items(), key=lambda item: -item[1])
        lines = [f"{name}: {count:,} cycles ({count / total:.0%})" for name, count in ordered]
        return "\n".join(line[:_WIDTH] for line in [f"timed: cycles ({total:,} in all)", *lines][:60])
