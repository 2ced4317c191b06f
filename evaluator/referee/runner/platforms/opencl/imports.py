"""What runners of platform `opencl` need beside what the host's own platform imports."""

import ctypes
import importlib
from contextlib import suppress

from ..cpu.imports import CpuImports


class OpenclImports:
    """See `base.PlatformImports`. The reference runs on the host, so torch is set up as there."""

    def __init__(self) -> None:
        host = CpuImports()
        self.before_torch = host.before_torch
        self.prepare_compiler_folder, self.look_up_compiler = host.prepare_compiler_folder, host.look_up_compiler

    def after_torch(self) -> None:
        """Import pyopencl, and load PoCL with its compiler, which takes 0.3 s. Neither starts a thread before its use.

        A candidate is told of what is missing when it imports it.
        """
        with suppress(ImportError):
            importlib.import_module("pyopencl")
        with suppress(OSError):
            ctypes.CDLL("libpocl.so.2")
