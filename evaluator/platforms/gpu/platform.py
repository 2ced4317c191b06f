"""A platform for GPUs on a device that is there: candidates are timed on it. The rest is as where they are screened."""

import statistics
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from evaluator.platforms.base import Device, Platform, PromptFiles
from evaluator.platforms.cpu.platform import CpuPlatform
from evaluator.platforms.gpu.driver import Look, facts_of, gpu_at, library_folders, nodes_of, provenance_of
from evaluator.referee.protocol.gpu_checks import TOOL_PLACES, part_on_gpu
from evaluator.referee.protocol.nvml import Gpu, NvmlError, opened
from sandbox.base import Devices
from sandbox.image.recipe import ImageRecipe
from sandbox.process.programs import HostPackage, HostProgram

_HOST = CpuPlatform()
_TIMED = "Candidates run on this GPU and are timed against eager PyTorch and torch.compile, with cold caches."
_EVERY_S = 0.1  # between two looks at how busy the device is


@dataclass(frozen=True)
class GpuPlatform:
    """CUDA C++ or Triton, timed on a GPU. See `base.Platform`.

    Attributes:
        screened: the platform as it is without a GPU.
        gpu: the device.
        look: finds other devices of this host.
    """

    screened: Platform
    gpu: Gpu
    look: Look = gpu_at
    timed: str = "wall"
    baselines: tuple[str, ...] = ("eager", "compile", "compile-max-autotune")
    measurable: bool = False

    @property
    def name(self) -> str:
        """That of the language."""
        return self.screened.name

    @property
    def part(self) -> str:
        """The referee's part for this language on this device."""
        return part_on_gpu(self.name, self.gpu.uuid)

    @property
    def language(self) -> str:
        """As where candidates are screened: the same files are taken."""
        return self.screened.language

    def device(self, index: int = 0) -> Device:
        """A GPU of this host.

        Raises:
            OSError: there is none of this index.
        """
        gpu = self.gpu if index == self.gpu.index else self.look(index)
        if gpu is None:
            raise OSError(f"no NVIDIA driver answers for GPU {index}")
        return Device(self.name, gpu.name, facts_of(gpu), index)

    def device_text(self, device: Device, figures: Mapping[str, Any]) -> str:
        """Its description, and that what is said of screening does not hold here."""
        return f"{device.describe()}\n{_TIMED}"

    def image(self) -> ImageRecipe:
        """As where candidates are screened."""
        return self.screened.image()

    def host_programs(self) -> tuple[HostProgram, ...]:
        """As where candidates are screened, NVIDIA's compiler for those that call it, and what profiles are made by."""
        toolkit, nsight = "install NVIDIA's CUDA toolkit", "install NVIDIA Nsight Compute"
        ours = (
            ("nvcc", "compiles candidates of load_inline", toolkit),
            ("ncu", "reads the hardware counters in profiles", nsight),
            ("cuobjdump", "tells registers and shared memory of CUDA C++ in profiles", toolkit),
            ("compute-sanitizer", "watches calls for --sanitize", toolkit),
        )
        programs = (HostProgram(name, purpose, remedy, places=TOOL_PLACES) for name, purpose, remedy in ours)
        return (*self.screened.host_programs(), *programs)

    def host_packages(self) -> tuple[HostPackage, ...]:
        """As where candidates are screened."""
        return self.screened.host_packages()

    def sandbox_devices(self, index: int) -> Devices:
        """The GPU: by its files to the process sandbox, by its name to a container engine."""
        shown = self.screened.sandbox_devices(index)
        gpus, folders = (self.gpu.uuid,), library_folders()
        return Devices(nodes=nodes_of(self.gpu), gpus=gpus, tools=shown.tools, libraries=folders)

    def exclusive_resources(self, index: int) -> tuple[str, ...]:
        """The GPU, whichever language is measured on it, and the processor that launches."""
        return (f"gpu-{index}", *_HOST.exclusive_resources(0))

    def load(self, wait: Callable[[], object]) -> float | None:
        """The share of the time in which some kernel ran, in the middle of several looks."""
        seen: list[float] = []
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_EVERY_S):
                try:
                    with opened() as nvml:
                        busy = nvml.state(self.gpu.uuid).busy
                except NvmlError:
                    return
                if busy is not None:
                    seen.append(busy)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        wait()
        done.set()
        watcher.join()
        return statistics.median(seen) if seen else None

    def prompts(self) -> PromptFiles:
        """As where candidates are screened, but for how they are judged."""
        return replace(self.screened.prompts(), rules="rules_on_device.md")

    def provenance(self, index: int) -> Mapping[str, str | None]:
        """Driver and settings of the device; clocks and temperature are in the profile."""
        return provenance_of(self.gpu)

    def requirements_text(self) -> str:
        """As where candidates are screened."""
        return self.screened.requirements_text()

    def builds_slowly(self, candidate_source: str) -> bool:
        """Where nvcc meets torch's headers, it takes a minute."""
        return "load_inline" in candidate_source

    def profile_text(self, profile: dict[str, Any]) -> str:
        """What the profile of either kind of verdict says: results of other hosts are shown here, too."""
        return self.screened.profile_text(profile)


def on_device(screened: Platform, index: int, *, look: Look = gpu_at) -> Platform:
    """The platform as it is on a device of this host: timed where a GPU is there, else screened.

    Args:
        screened: the platform without a GPU.
        index: the device that is asked for, counted from 0.
        look: finds it.
    """
    gpu = look(index)
    return screened if gpu is None else GpuPlatform(screened, gpu, look)
