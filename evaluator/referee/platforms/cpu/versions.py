"""The versions that a result depends on: torch, Python, the kernel, the compiler and the allocator."""

import os
import platform
import subprocess
from pathlib import Path

from .code_sampling import executable_files


def versions() -> dict[str, str | None]:
    """Versions that a result depends on, and the cores that it may use."""
    import torch

    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "compiler": _compiler(),
        "allocator": _allocator(),
        "cores": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
    }


def _compiler() -> str | None:
    """The first line that g++ says of itself; None if there is none."""
    try:
        done = subprocess.run(["g++", "--version"], stdout=subprocess.PIPE, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return (done.stdout.splitlines() or [""])[0][:200]


def _allocator() -> str:
    """The file that malloc comes from: one that was preloaded, or the C library."""
    preloaded = os.environ.get("LD_PRELOAD", "")
    mapped = {Path(name).name for name in executable_files(os.getpid())}
    name = Path(preloaded).resolve().name
    return name if preloaded and name in mapped else "libc"
