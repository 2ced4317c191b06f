"""Platform `hip` in a runner: that of platform `cuda` with HIP's words, another device and clang as compiler."""

from ..cuda.platform import CudaRunner
from ..gpu.seeming import Properties
from . import clang
from .words import HIP

_MI250X = Properties("AMD Instinct MI250X", 9, 0, 110, 64 << 30, 64)
"""As the emulation's `hipGetDeviceProperties` describes it: one of its two devices."""


def hip_runner() -> CudaRunner:
    """See `base.RunnerPlatform`."""
    return CudaRunner(HIP, clang.compiled, _MI250X)
