"""What torch reads when it is imported, and what torch.compile looks up about this processor, for platform `cpu`."""

import ctypes
import os
import sys
from pathlib import Path

from . import compiler_folder


class CpuImports:
    """See `base.PlatformImports`."""

    def before_torch(self) -> None:
        """Set what torch and OpenMP read when they are imported. No thread pool may start here: a fork would break it.

        Raises:
            RuntimeError: torch is imported already, and OpenMP has read its settings.
        """
        if "torch" in sys.modules:
            raise RuntimeError("torch was imported before it was told to bind its threads to cores")
        # Each OpenMP thread stays on a core of its own: woken up together, two of them often met on one core, and a
        # call of 2 ms took 6 or 30.
        os.environ["OMP_PROC_BIND"] = "true"
        os.environ["OMP_PLACES"] = "cores"
        # Nothing computes on a GPU here. Where torch sees one, torch.compile asks it, which fails in a forked process.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        if not compiler_folder.READY.exists():
            # Building a precompiled header takes longer than the one or two kernels of a task.
            os.environ["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"

    def after_torch(self) -> None:
        """Nothing else."""

    def prepare_compiler_folder(self, folder: Path) -> None:
        """Link the image's precompiled header and what it has found out about this processor."""
        compiler_folder.prepare(folder)

    def look_up_compiler(self) -> None:
        """Have Inductor find out which vector extensions this processor has, by forks."""
        from torch._inductor import cpu_vec_isa

        setattr(cpu_vec_isa.VecISA, "_probe_load", _loads_in_a_fork)  # noqa: B010 - a method of theirs
        cpu_vec_isa.pick_vec_isa()


def _loads_in_a_fork(_: object, library: str) -> bool:
    """Whether a library can be loaded: for torch, which starts a Python for each extension that a processor may have.

    A fork has torch's libraries in it already, which saves 0.7 s in all.
    """
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            ctypes.CDLL(library)
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
