"""What platforms under qemu-user have in common: C with vectors of any length. Their figures are executed instructions.

Each stands for a device that exists only as an emulator. What is ranked is an exact count that repeats, never a time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.platforms.base import Device, PromptFiles
from evaluator.referee.protocol.instructions import VLENS
from sandbox.base import Devices
from sandbox.image.recipe import ImageRecipe
from sandbox.process.programs import HostPackage, HostProgram

_WIDTH, _LINES = 100, 60
_OTHER = "scalar integers and branches"


@dataclass(frozen=True)
class EmulatedPlatform:
    """An instruction set with vectors, under an emulator. See `base.Platform`.

    Attributes:
        folder: holds `prompts/`.
        recipe: of its image.
        machine: the name of its devices.
        instruction_set: what devices' descriptions say of it.
        emulator: the program of qemu-user.
        library: the package of Debian that brings its C library.
        vector_traffic: whether the bytes that are loaded and stored are counted for vectors, too.
    """

    name: str
    language: str
    folder: Path
    recipe: ImageRecipe
    machine: str
    instruction_set: str
    emulator: str
    library: str
    vector_traffic: bool
    timed: str = "instructions"
    baselines: tuple[str, ...] = ("eager",)
    measurable: bool = False

    @property
    def part(self) -> str:
        """Its name."""
        return self.name

    def device(self, index: int = 0) -> Device:
        """The machine that candidates are compiled for and counted on."""
        facts = {
            "counted": "executed instructions, at each vector length, added up; no times",
            "instruction set": self.instruction_set,
            "vector lengths": f"{', '.join(map(str, VLENS))} bits: a kernel must be right at all of them",
            "compiler": "clang 19",
            "emulator": f"{self.emulator}, user mode",
        }
        return Device(self.name, self.machine, facts, index)

    def device_text(self, device: Device, figures: Mapping[str, Any]) -> str:
        """Its description says all."""
        return device.describe()

    def image(self) -> ImageRecipe:
        """One for all such platforms."""
        return self.recipe

    def host_programs(self) -> tuple[HostProgram, ...]:
        """Compiler, linker and emulator."""
        packages = f"apt-get install clang-19 lld-19 qemu-user {self.library}"
        return (
            HostProgram("clang-19", "compiles kernels in the process sandbox", packages, required=True),
            HostProgram("ld.lld-19", "links kernels in the process sandbox", packages, required=True),
            HostProgram(self.emulator, "runs kernels in the process sandbox", packages, required=True),
        )

    def host_packages(self) -> tuple[HostPackage, ...]:
        """None."""
        return ()

    def sandbox_devices(self, index: int) -> Devices:
        """None: the machine is a program."""
        return Devices()

    def exclusive_resources(self, index: int) -> tuple[str, ...]:
        """None: a count is the same whatever else runs."""
        return ()

    def load(self, wait: Callable[[], object]) -> float | None:
        """None at all: nothing disturbs a count."""
        return 0.0

    def provenance(self, index: int) -> Mapping[str, str | None]:
        """Nothing beside the machine's description; the referee tells the versions of compiler and emulator."""
        return {}

    def requirements_text(self) -> str:
        """Kernels are called through the module that the referee gives them."""
        return f"Kernelwright's platform {self.name} (clang 19 and qemu-user)"

    def prompts(self) -> PromptFiles:
        """The texts in `prompts/`; no built-in model writes for it."""
        return PromptFiles(self.folder / "prompts", default_category="normalization")

    def builds_slowly(self, candidate_source: str) -> bool:
        """Never: a kernel compiles in a fraction of a second."""
        return False

    def profile_text(self, profile: dict[str, Any]) -> str:
        """Instructions by kind and by kernel, at each vector length; empty if nothing was counted."""
        counted = (profile.get("detail") or {}).get("instructions") or profile.get("instructions") or {}
        if not counted:
            return ""
        total = sum(each.get("total", 0) for each in counted.values())
        lines = [f"counted: instructions ({total:,} in all, at the vector lengths together; no time)"]
        for vlen, each in counted.items():
            whole = each.get("total", 0) or 1
            kinds = [(name, count) for name, count in each.items() if isinstance(count, int) and " " in name]
            scalar = whole - sum(count for _, count in kinds)
            shown = [f"{name} {count:,} ({count / whole:.0%})" for name, count in (*kinds, (_OTHER, scalar))]
            moved = f"{each.get('loaded_bytes', 0):,} bytes loaded, {each.get('stored_bytes', 0):,} stored"
            beside = "" if self.vector_traffic else " but by SVE"
            lines.append(f"vlen {vlen}: {whole:,} instructions; {moved}{beside}")
            lines += [f"  {', '.join(shown[start : start + 3])}" for start in range(0, len(shown), 3)]
            lines += [f"  {name}: {count:,}" for name, count in (each.get("launches") or [])[:12]]
        return "\n".join(line[:_WIDTH] for line in lines[:_LINES])
