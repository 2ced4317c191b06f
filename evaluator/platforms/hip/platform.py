"""Platform `hip`: HIP for AMD's GPUs, screened on a machine without one. Nothing is timed, so nothing is ranked."""

from dataclasses import dataclass
from pathlib import Path

from evaluator.platforms.base import Device, PromptFiles
from evaluator.platforms.hip.image import RECIPE
from evaluator.platforms.screened import Screened
from sandbox.base import Devices
from sandbox.image.recipe import ImageRecipe
from sandbox.process.programs import HostPackage, HostProgram


@dataclass(frozen=True)
class HipPlatform(Screened):
    """HIP, screened. See `base.Platform`."""

    name: str = "hip"
    part: str = "hip"
    language: str = "HIP C++ in torch.utils.cpp_extension.load_inline, compiled by clang 19 for AMD's GPUs"

    def device(self, index: int = 0) -> Device:
        """No GPU: the emulation, which is the same on every host."""
        facts = {
            "timed": "nothing: candidates are screened",
            "runs": "kernels on the host's processor, one block after another, a fiber for each thread",
            "wavefronts": "64 threads, as on gfx90a and gfx942",
            "checked": "outputs, data races in a block, bounds, barriers, the order of blocks and threads",
            "compiler for GPUs": "clang 19",
            "not checked": "wavefronts of 32 (gfx1100 is compiled for alone); races between blocks but for the order "
            "of blocks; speed",
        }
        return Device(self.name, "HIP threads on the host", facts, index)

    def image(self) -> ImageRecipe:
        """The files in `image/`, on the image of platform `cuda`."""
        return RECIPE

    def host_programs(self) -> tuple[HostProgram, ...]:
        """A compiler for the host, with its sanitizers, and one for GPUs."""
        return (
            HostProgram(
                "g++", "builds kernels for the host in the process sandbox", "apt-get install g++", required=True
            ),
            HostProgram(
                "clang-19", "compiles kernels for GPUs in the process sandbox", "apt-get install clang-19",
                required=False,
            ),
        )  # fmt: skip

    def host_packages(self) -> tuple[HostPackage, ...]:
        """None."""
        return ()

    def sandbox_devices(self, index: int) -> Devices:
        """No GPU."""
        return Devices()

    def requirements_text(self) -> str:
        """A candidate is compiled by hipcc when it is imported."""
        return "PyTorch with ROCm, hipcc and an AMD GPU"

    def prompts(self) -> PromptFiles:
        """The texts in `prompts/`; no built-in model writes HIP."""
        return PromptFiles(Path(__file__).parent / "prompts", default_category="normalization")

    def builds_slowly(self, candidate_source: str) -> bool:
        """Where torch's headers come into it."""
        return "load_inline" in candidate_source
