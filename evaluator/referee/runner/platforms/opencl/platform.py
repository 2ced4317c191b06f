"""Platform `opencl` in a runner: a processor whose kernels PoCL compiles."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from ..cpu import threads
from ..cpu.platform import CpuRunner


class OpenclRunner:
    """See `base.RunnerPlatform`. PoCL's kernels run on threads of this process, as those of `CpuRunner` do."""

    def __init__(self) -> None:
        self._everywhere = os.sched_getaffinity(0)  # before torch binds this thread
        self._host = host = CpuRunner()
        self.commands, self.foreign_code, self.settle = host.commands, host.foreign_code, host.settle
        self.give_way, self.beside_calls, self.measure_peaks = host.give_way, host.beside_calls, host.measure_peaks

    def modules(self) -> Mapping[str, ModuleType]:
        """None: candidates import pyopencl."""
        return {}

    def keep_builds(self, folder: Path) -> None:
        """Have PoCL keep programs and kernels there, and start its threads on all processors, whoever bound this one.

        Extensions of torch are kept as on the host's own platform.
        """
        self._host.keep_builds(folder)
        os.environ["POCL_CACHE_DIR"] = str(folder / "pocl")
        threads.start_on(self._everywhere)
