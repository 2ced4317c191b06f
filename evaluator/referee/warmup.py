"""What happens before anything foreign: importing torch once, so that every runner can be forked with it in place."""

import os
import platform
import socket
import sys

from . import compiler_cache


def import_torch() -> None:
    """Import what runners need. No thread pool may start here: a fork would break it."""
    # Each OpenMP thread stays on a core of its own: woken up together, two of them often met on one core, and a call of
    # 2 ms took 6 or 30.
    os.environ["OMP_PROC_BIND"] = "true"
    os.environ["OMP_PLACES"] = "cores"
    every_core = os.sched_getaffinity(0)
    # Read by torch when it is imported. One compile worker, because a pool would run beside timed calls.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    if not compiler_cache.READY.exists():
        # Building a precompiled header takes longer than the one or two kernels of a task.
        os.environ["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"
    import torch
    import torch.profiler
    import torch.utils.flop_counter  # noqa: F401

    # OpenMP has bound this thread to the first core; what is forked from here may build and start threads anywhere.
    os.sched_setaffinity(0, every_core)

    # A missing module would otherwise be looked up in the folder that we were started from.
    sys.path[:] = [entry for entry in sys.path if entry not in ("", os.getcwd())]  # noqa: PTH109


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    import torch

    return {"torch": torch.__version__, "python": platform.python_version(), "kernel": platform.release()}


def become_nursery(sock: socket.socket) -> None:
    """Serve as the nursery; never returns. Result channel and request are closed before anything foreign runs."""
    from . import nursery

    try:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        nursery.serve(sock)
    finally:
        os._exit(0)
