"""CUDA C++ or Triton in a runner, on a GPU: candidates are built and run as they are anywhere."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from ....protocol.framing import Message
from . import peaks
from .calls import DeviceCalls
from .memory import CudaMemory

if TYPE_CHECKING:
    from ...main import Runner

_OWN_FEATURES = 9  # from this major version on, an architecture has features of its own: sm_90a


class OnGpuRunner:
    """See `base.RunnerPlatform`."""

    def modules(self) -> Mapping[str, ModuleType]:
        """None: candidates import torch and triton."""
        return {}

    def commands(self, runner: "Runner") -> Mapping[str, Callable[[Message], Message]]:
        """Those that differ on a GPU."""
        return DeviceCalls(runner, CudaMemory()).commands()

    def keep_builds(self, folder: Path) -> None:
        """What compilers make goes where the next runner of the candidate gets it; load_inline builds for this GPU."""
        os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
        os.environ["CUDA_CACHE_PATH"] = str(folder / "cuda_cache")
        os.environ["TORCH_CUDA_ARCH_LIST"] = architecture(*torch.cuda.get_device_capability())

    def foreign_code(self) -> AbstractContextManager[None]:
        """Nothing differs."""
        return contextlib.nullcontext()

    def settle(self) -> None:
        """Nothing to ready: the calling thread only launches."""

    def give_way(self) -> None:
        """Nothing is sampled here."""

    def beside_calls(self) -> AbstractContextManager[None]:
        """Inputs are made on the host, with one thread, so that those who launch find a processor."""
        return _with_one_thread()

    def measure_peaks(self, points: Sequence[str]) -> dict[str, float]:
        """See `peaks.measure`."""
        return peaks.measure(points)


def architecture(major: int, minor: int) -> str:
    """What torch's extension builder is told to compile for, where the device is of this compute capability."""
    return f"{major}.{minor}{'a' if major >= _OWN_FEATURES else ''}"


@contextlib.contextmanager
def _with_one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
