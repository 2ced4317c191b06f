"""Platform `cuda`: CUDA C++ for a GPU, screened on a machine without one. Nothing is timed, so nothing is ranked."""

from dataclasses import dataclass
from pathlib import Path

from evaluator.platforms.base import Device, PromptFiles
from evaluator.platforms.cuda.image import RECIPE
from evaluator.platforms.screened import Screened
from evaluator.referee.protocol.gpu_checks import toolkit
from sandbox.base import Devices
from sandbox.image.recipe import ImageRecipe
from sandbox.process.programs import HostPackage, HostProgram


@dataclass(frozen=True)
class CudaPlatform(Screened):
    """CUDA C++, screened. See `base.Platform`."""

    name: str = "cuda"
    part: str = "cuda"
    language: str = "CUDA C++ in torch.utils.cpp_extension.load_inline or torch.cuda._compile_kernel"

    def device(self, index: int = 0) -> Device:
        """No GPU: the emulation, which is the same on every host."""
        facts = {
            "timed": "nothing: candidates are screened",
            "runs": "kernels on the host's processor, one block after another, a fiber for each thread",
            "checked": "outputs, data races in a block, bounds, barriers, the order of blocks and threads",
            "compiler for GPUs": "none (pip install 'kernelwright[cuda]')" if toolkit() is None else "NVIDIA's NVRTC",
            "not checked": "races between blocks but for the order of blocks; speed",
        }
        return Device(self.name, "CUDA threads on the host", facts, index)

    def image(self) -> ImageRecipe:
        """The files in `image/`, on the image of platform `cpu`."""
        return RECIPE

    def host_programs(self) -> tuple[HostProgram, ...]:
        """A compiler for the host, with its sanitizers."""
        return (
            HostProgram(
                "g++", "builds kernels for the host in the process sandbox", "apt-get install g++", required=True
            ),
        )

    def host_packages(self) -> tuple[HostPackage, ...]:
        """NVIDIA's compiler. Without it nothing is shown to compile for GPUs."""
        remedy = "pip install 'kernelwright[cuda]'"
        return (HostPackage("NVIDIA's NVRTC", "compiles kernels for GPUs", remedy, toolkit() is not None),)

    def sandbox_devices(self, index: int) -> Devices:
        """No GPU; NVIDIA's compiler, where its wheels are installed."""
        place = toolkit()
        return Devices(tools=(("cuda", str(place)),)) if place is not None else Devices()

    def requirements_text(self) -> str:
        """A candidate is compiled by nvcc when it is imported."""
        return "PyTorch with CUDA, nvcc and a GPU"

    def prompts(self) -> PromptFiles:
        """The texts in `prompts/`; no built-in model writes CUDA."""
        return PromptFiles(Path(__file__).parent / "prompts", default_category="normalization")

    def builds_slowly(self, candidate_source: str) -> bool:
        """Where torch's headers come into it."""
        return "load_inline" in candidate_source
