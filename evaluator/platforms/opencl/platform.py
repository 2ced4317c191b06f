"""Platform `opencl`: OpenCL C on this host's processor, by PoCL. Its figures are times, as those of platform `cpu`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaluator.platforms.base import Device, PromptFiles
from evaluator.platforms.cpu.platform import CpuPlatform
from evaluator.platforms.opencl.image import RECIPE
from sandbox.base import Devices
from sandbox.image.recipe import ImageRecipe
from sandbox.process.programs import HostPackage, HostProgram

_HOST = CpuPlatform()


@dataclass(frozen=True)
class OpenclPlatform:
    """OpenCL C on a CPU. See `base.Platform`."""

    name: str = "opencl"
    part: str = "opencl"
    language: str = "OpenCL C 1.2, called by pyopencl and compiled by PoCL for the processor"
    timed: str = "wall"
    baselines: tuple[str, ...] = _HOST.baselines
    measurable: bool = True

    def device(self, index: int = 0) -> Device:
        """The processor, and who compiles for it."""
        host = _HOST.device(index)
        facts = {**host.facts, "OpenCL": "PoCL, its device of kind CPU"}
        return replace(host, platform=self.name, name=f"{host.name}, by PoCL", facts=facts)

    def device_text(self, device: Device, figures: Mapping[str, Any]) -> str:
        """As platform `cpu` tells of the processor."""
        return _HOST.device_text(device, figures)

    def image(self) -> ImageRecipe:
        """The files in `image/`, on the image of platform `cpu`."""
        return RECIPE

    def host_programs(self) -> tuple[HostProgram, ...]:
        """What PoCL links kernels with, and what torch.compile needs."""
        return (
            HostProgram(
                "clang-15",
                "PoCL links kernels with it in the process sandbox",
                "apt-get install pocl-opencl-icd, and pip install 'kernelwright[opencl]'",
                required=True,
            ),
            *_HOST.host_programs(),
        )

    def host_packages(self) -> tuple[HostPackage, ...]:
        """None."""
        return ()

    def sandbox_devices(self, index: int) -> Devices:
        """None: the processor is there in every sandbox."""
        return _HOST.sandbox_devices(index)

    def exclusive_resources(self, index: int) -> tuple[str, ...]:
        """What platform `cpu` needs, so that neither is measured beside the other."""
        return _HOST.exclusive_resources(index)

    def load(self, wait: Callable[[], object]) -> float | None:
        """That of the processor."""
        return _HOST.load(wait)

    def prompts(self) -> PromptFiles:
        """The texts in `prompts/`; no built-in model writes OpenCL C."""
        return PromptFiles(Path(__file__).parent / "prompts", default_category="normalization")

    def provenance(self, index: int) -> Mapping[str, str | None]:
        """Microcode and flags of the processor; the referee tells the versions of PoCL and pyopencl."""
        return _HOST.provenance(index)

    def requirements_text(self) -> str:
        """A candidate brings its kernels' source, and whatever OpenCL is there compiles it."""
        return "PyTorch, pyopencl and an OpenCL driver for the processor (PoCL)"

    def builds_slowly(self, candidate_source: str) -> bool:
        """As on platform `cpu`: PoCL itself takes a second or two."""
        return _HOST.builds_slowly(candidate_source)

    def profile_text(self, profile: dict[str, Any]) -> str:
        """As on platform `cpu`: time by file, of which each kernel is one, and use of the processor."""
        detail = dict(profile.get("detail") or {})
        absent = {name: why for name, why in detail.get("absent", {}).items() if name != "vectorization"}  # C++
        return _HOST.profile_text({**profile, "detail": {**detail, "absent": absent}} if detail else profile)
