"""Platform `riscv`: C with RISC-V's vector intrinsics, under qemu-user. Its figures are executed instructions.

It stands for a device that exists only as an emulator. What is ranked is an exact count that repeats, never a time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.platforms.base import Device, PromptFiles
from evaluator.platforms.riscv.image import RECIPE
from evaluator.referee.protocol.instructions import VLENS
from sandbox.base import Devices
from sandbox.image.recipe import ImageRecipe
from sandbox.process.programs import HostPackage, HostProgram

_WIDTH, _LINES = 100, 60
_OTHER = "scalar integers and branches"
_PACKAGES = "apt-get install clang-19 lld-19 qemu-user libc6-dev-riscv64-cross"


@dataclass(frozen=True)
class RiscvPlatform:
    """RISC-V with vectors under an emulator. See `base.Platform`."""

    name: str = "riscv"
    part: str = "riscv"
    language: str = "C17 with RISC-V vector intrinsics or assembly (module `riscv`), compiled by clang 19"
    timed: str = "instructions"
    baselines: tuple[str, ...] = ("eager",)
    measurable: bool = False

    def device(self, index: int = 0) -> Device:
        """The machine that candidates are compiled for and counted on."""
        facts = {
            "counted": "executed instructions, at each vector length, added up; no times",
            "instruction set": "rv64gcv with Zba, Zbb, Zbs and Zfh, vectors 1.0 with elements of up to 64 bits",
            "vector lengths": f"{', '.join(map(str, VLENS))} bits: a kernel must be right at all of them",
            "compiler": "clang 19",
            "emulator": "qemu-riscv64, user mode",
        }
        return Device(self.name, "RISC-V with vectors, emulated", facts, index)

    def device_text(self, device: Device, figures: Mapping[str, Any]) -> str:
        """Its description says all."""
        return device.describe()

    def image(self) -> ImageRecipe:
        """The files in `image/`."""
        return RECIPE

    def host_programs(self) -> tuple[HostProgram, ...]:
        """Compiler, linker and emulator."""
        return (
            HostProgram("clang-19", "compiles kernels in the process sandbox", _PACKAGES, required=True),
            HostProgram("ld.lld-19", "links kernels in the process sandbox", _PACKAGES, required=True),
            HostProgram("qemu-riscv64", "runs kernels in the process sandbox", _PACKAGES, required=True),
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
        return "Kernelwright's platform riscv (clang 19 and qemu-user)"

    def prompts(self) -> PromptFiles:
        """The texts in `prompts/`; no built-in model writes for it."""
        return PromptFiles(Path(__file__).parent / "prompts", default_category="normalization")

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
            lines.append(f"vlen {vlen}: {whole:,} instructions; {each.get('loaded_bytes', 0):,} bytes loaded, "
                         f"{each.get('stored_bytes', 0):,} stored")  # fmt: skip
            lines += [f"  {', '.join(shown[start : start + 3])}" for start in range(0, len(shown), 3)]
            lines += [f"  {name}: {count:,}" for name, count in (each.get("launches") or [])[:12]]
        return "\n".join(line[:_WIDTH] for line in lines[:_LINES])
