"""Platform `triton`: kernels of Triton for a GPU, screened on a machine without one. Nothing is timed or ranked."""

from dataclasses import dataclass
from pathlib import Path

from evaluator.platforms.base import Device, PromptFiles
from evaluator.platforms.screened import Screened
from evaluator.referee.protocol.gpu_checks import triton_package
from sandbox.base import Devices
from sandbox.process.programs import HostPackage, HostProgram


@dataclass(frozen=True)
class TritonPlatform(Screened):
    """Kernels of Triton, screened. See `base.Platform`."""

    name: str = "triton"
    part: str = "triton"
    language: str = "Triton"

    def device(self, index: int = 0) -> Device:
        """No GPU: the interpreter, which is the same on every host."""
        missing = triton_package() is None
        facts = {
            "timed": "nothing: candidates are screened",
            "runs": "kernels in Triton's interpreter, one program of the grid after another",
            "checked": "outputs, data races between programs, bounds, the order of programs, every configuration",
            "compiler for GPUs": "none (pip install 'kernelwright[triton]')" if missing else "Triton's own",
            "not checked": "speed; races between threads of one program but for stores that are read again",
        }
        return Device(self.name, "Triton programs on the host", facts, index)

    def host_programs(self) -> tuple[HostProgram, ...]:
        """None: Triton brings its own."""
        return ()

    def host_packages(self) -> tuple[HostPackage, ...]:
        """Triton."""
        remedy = "pip install 'kernelwright[triton]'"
        there = triton_package() is not None
        return (HostPackage("Triton", "runs and compiles kernels", remedy, there, required=True),)

    def sandbox_devices(self, index: int) -> Devices:
        """No GPU; Triton, where it is installed."""
        place = triton_package()
        return Devices(tools=(("triton", str(place)),)) if place is not None else Devices()

    def requirements_text(self) -> str:
        """A candidate is compiled when it is called."""
        return "PyTorch with CUDA, Triton and a GPU"

    def prompts(self) -> PromptFiles:
        """The texts in `prompts/`; no built-in model writes Triton."""
        return PromptFiles(Path(__file__).parent / "prompts", default_category="normalization")

    def builds_slowly(self, candidate_source: str) -> bool:
        """Never: it is interpreted."""
        return False
