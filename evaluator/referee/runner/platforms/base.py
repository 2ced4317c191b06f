"""The seam between a runner and a platform, on the side of foreign code. Nothing here is evidence."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from ...protocol.framing import Message

if TYPE_CHECKING:
    from ..main import Runner


class PlatformImports(Protocol):
    """What a platform does before anything foreign is loaded, in the process that runners are forked from."""

    def before_torch(self) -> None:
        """Set what torch reads when it is imported. No thread pool and no device context may start.

        Raises:
            RuntimeError: torch is imported already.
        """
        ...

    def after_torch(self) -> None:
        """Import what else runners of this platform need, so that none spends time on that."""
        ...

    def prepare_compiler_folder(self, folder: Path) -> None:
        """Create TorchInductor's cache folder of a runner, with what the image holds ready for it."""
        ...

    def look_up_compiler(self) -> None:
        """Have torch.compile find out what it wants to know about the device."""
        ...


class RunnerPlatform(Protocol):
    """What a platform does in a runner."""

    def modules(self) -> Mapping[str, ModuleType]:
        """Modules that a candidate may import by these names, beside what is installed."""
        ...

    def commands(self, runner: "Runner") -> Mapping[str, Callable[[Message], Message]]:
        """What the referee may ask for beside the common commands, by name."""
        ...

    def keep_builds(self, folder: Path) -> None:
        """Have compilers keep in `folder` what they make for the candidate, for the next runner of it.

        Called before the candidate is loaded.
        """
        ...

    def foreign_code(self) -> AbstractContextManager[None]:
        """A context in which the task's or the candidate's module is loaded, its model made and called."""
        ...

    def settle(self) -> None:
        """Ready the calling thread for timed calls."""
        ...

    def give_way(self) -> None:
        """Run only while nobody else wants the processor, from now on."""
        ...

    def beside_calls(self) -> AbstractContextManager[None]:
        """A context for work that the referee does not wait for: it keeps off what timed calls use."""
        ...

    def measure_peaks(self, points: Sequence[str]) -> dict[str, float]:
        """The rate of each point (`protocol.peaks`): what the device can do at best."""
        ...
