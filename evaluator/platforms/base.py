"""The seam between the evaluator and a platform: what differs between languages and kinds of device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sandbox.base import Devices
from sandbox.image.recipe import ImageRecipe
from sandbox.process.programs import HostPackage, HostProgram


@dataclass(frozen=True)
class Device:
    """One platform on one host, as provenance and prompts name it."""

    platform: str
    name: str  # "NVIDIA H200"
    facts: dict[str, str]  # vector extensions, cache sizes, memory
    index: int = 0  # which one of the platform's devices on this host

    def describe(self) -> str:
        """A few lines that are the same for devices whose results are comparable. They identify its class."""
        return "\n".join((self.name, *(f"{key}: {value}" for key, value in self.facts.items())))


@dataclass(frozen=True)
class PromptFiles:
    """Where the texts lie that prompts show for a platform.

    Attributes:
        folder: holds the rules, `categories.md` (may be absent) and `exemplars/CATEGORY.py` with `CATEGORY_task.py`.
        default_category: the category whose exemplar is shown for categories that have none.
        seeds: values of the option `--seed` that work here: models that write candidates without a language model.
        rules: the file in the folder that says how candidates are written and judged.
    """

    folder: Path
    default_category: str
    seeds: tuple[str, ...] = ()
    rules: str = "rules.md"


class Platform(Protocol):
    """One folder beside this file each."""

    @property
    def name(self) -> str:
        """How commands and the store name it: `cpu`."""
        ...

    @property
    def part(self) -> str:
        """Which part of the referee judges on it: its name, or that of its part for one device (`gpu_checks`)."""
        ...

    @property
    def language(self) -> str:
        """What candidates are written in, for prompts."""
        ...

    @property
    def timed(self) -> str:
        """What its latencies are made of: `wall`, a clock; or `cycles` or `instructions`, a count at a nominal rate.

        Where it is `nothing` there are no latencies: candidates are screened, never timed or ranked.
        """
        ...

    @property
    def baselines(self) -> tuple[str, ...]:
        """What candidates are compared with here: `eager`, and `compile` where torch.compile works on the device."""
        ...

    def device(self, index: int = 0) -> Device:
        """A device of this host, counted from 0.

        Raises:
            OSError: the device cannot be probed.
        """
        ...

    @property
    def measurable(self) -> bool:
        """Whether there are figures of its devices to be measured (`referee/platforms/base.py`, `device_figures`)."""
        ...

    def device_text(self, device: Device, figures: Mapping[str, Any]) -> str:
        """What models are told of a device before anything is measured on a task.

        Args:
            device: the device.
            figures: as the referee has measured them; empty: it has not.
        """
        ...

    def image(self) -> ImageRecipe:
        """What the image of its sandboxes is made from. Platforms may share one."""
        ...

    def host_programs(self) -> tuple[HostProgram, ...]:
        """What candidates call on the host where they run in the process sandbox."""
        ...

    def host_packages(self) -> tuple[HostPackage, ...]:
        """What its sandboxes are shown of the host's Python packages, and whether they are installed."""
        ...

    def sandbox_devices(self, index: int) -> Devices:
        """What a sandbox opens of the host's devices to a command that runs on the device of this index."""
        ...

    def exclusive_resources(self, index: int) -> tuple[str, ...]:
        """What a measurement on a device needs for itself, by names that are the same in all platforms of a host.

        The locks of these names are held while anything runs on the device. A name consists of letters, digits and
        hyphens: `gpu-0`.
        """
        ...

    def load(self, wait: Callable[[], object]) -> float | None:
        """The load of everything on this host on the device during `wait`; None where that cannot be told.

        1 is one of the device's units that run alone (a processor). Called while nothing is measured.
        """
        ...

    def prompts(self) -> PromptFiles:
        """What prompts say about this platform."""
        ...

    def provenance(self, index: int) -> Mapping[str, str | None]:
        """What else a result on a device depends on: driver, clocks, microcode. None: it could not be found out."""
        ...

    def requirements_text(self) -> str:
        """What an exported kernel needs to run, to end a sentence: `PyTorch and Triton`."""
        ...

    def builds_slowly(self, candidate_source: str) -> bool:
        """Whether building this candidate may well take many seconds, so that it is worth doing ahead. A guess."""
        ...

    def profile_text(self, profile: dict[str, object]) -> str:
        """An evaluation's profile, with its `detail` if present: at most 60 lines of 100 columns for a Judge."""
        ...
