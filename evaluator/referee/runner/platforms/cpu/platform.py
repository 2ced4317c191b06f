"""Platform `cpu` in a runner."""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ....protocol.framing import Message
from . import compiler_cache, device_figures, peaks, threads
from .profiling.profiler import Profiler

if TYPE_CHECKING:
    from ...main import Runner


class CpuRunner:
    """See `base.RunnerPlatform`."""

    def __init__(self) -> None:
        self._every_core = os.sched_getaffinity(0)  # before OpenMP binds this thread

    def modules(self) -> Mapping[str, ModuleType]:
        """None."""
        return {}

    def commands(self, runner: "Runner") -> Mapping[str, Callable[[Message], Message]]:
        """The questions of a profile, and the figures of the device, asked of a runner without foreign code."""
        profiler = Profiler(runner.decoded, lambda: runner.model)
        return {
            "profile": profiler.answer,
            "top_operators": profiler.top_operators,
            "device_figures": self._measure_device,
        }

    def keep_builds(self, folder: Path) -> None:
        """See `compiler_cache`."""
        compiler_cache.install(folder / "compiled", folder.parent / "compilers")

    def foreign_code(self) -> AbstractContextManager[None]:
        """Nothing differs."""
        return contextlib.nullcontext()

    def settle(self) -> None:
        """Bind the calling thread as OpenMP has bound its others; those that a candidate starts run on every core."""
        threads.bind_to_first(self._every_core)

    def give_way(self) -> None:
        """See `threads.give_way`."""
        threads.give_way()

    def beside_calls(self) -> AbstractContextManager[None]:
        """See `threads.beside_the_callers`."""
        return threads.beside_the_callers(self._every_core)

    def _measure_device(self, message: Message) -> Message:
        self.settle()
        return {"figures": device_figures.measure(message["rotation_bytes"])}

    def measure_peaks(self, points: Sequence[str]) -> dict[str, float]:
        """See `peaks.measure`."""
        return peaks.measure(points)
