"""Platform `cpu` in a runner."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ....protocol.framing import Message
from . import compiler_cache, peaks, threads
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
        """The questions of a profile."""
        profiler = Profiler(runner.decoded, lambda: runner.model)
        return {"profile": profiler.answer, "top_operators": profiler.top_operators}

    def keep_builds(self, folder: Path) -> None:
        """See `compiler_cache`."""
        compiler_cache.install(folder / "compiled", folder.parent / "compilers")

    def settle(self) -> None:
        """Bind the calling thread as OpenMP has bound its others.

        Only now, so that threads which a candidate has started by itself may run on every core.
        """
        threads.bind_to_first()

    def give_way(self) -> None:
        """See `threads.give_way`."""
        threads.give_way()

    def beside_calls(self) -> AbstractContextManager[None]:
        """See `threads.beside_the_callers`."""
        return threads.beside_the_callers(self._every_core)

    def measure_peaks(self, points: Sequence[str]) -> dict[str, float]:
        """See `peaks.measure`."""
        return peaks.measure(points)
