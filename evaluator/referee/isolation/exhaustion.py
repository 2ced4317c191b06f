"""What a sandbox has run out of, and whether a candidate is to blame: it is if there is enough once it is gone.

Files, processes and System V shared memory are bounded for the whole sandbox only. A candidate that hoards them would
starve the runners of the task, which would then seem to be at fault.
"""

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from . import cleanup

_FOLDERS = ("/dev/shm",)  # noqa: S108 - where everybody may write, beside the scratch folder
_TIMEOUT_S = 20.0
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
_PIDS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/pids"))


@dataclass(frozen=True)
class Bound:
    """Above which share of what there is something is short, and which share is no longer anybody's fair one."""

    what: str
    short: float
    hoarded: float


_BOUNDS = {
    "disk": Bound("space for files", 0.75, 0.5),
    "files": Bound("room for more files", 0.75, 0.5),
    "processes": Bound("processes", 0.75, 0.5),
    "shared_memory": Bound("memory (System V shared memory)", 0.125, 0.125),
}


def used(scratch: str, memory_bytes: int, first_uid: int) -> dict[str, float]:
    """Which share of each resource is in use; of System V shared memory, by users from `first_uid` on."""
    disk = os.statvfs(scratch)
    shared = sum(int(row.get("rss", row["size"])) for row in cleanup.sysv("shm") if int(row["uid"]) >= first_uid)
    return {
        "disk": 1 - disk.f_bavail / max(1, disk.f_blocks),
        "files": 1 - disk.f_favail / disk.f_files if disk.f_files else 0.0,
        "processes": _processes(),
        "shared_memory": shared / memory_bytes,
    }


def short(before: dict[str, float]) -> list[str]:
    """What there is too little of."""
    return [name for name, share in before.items() if share > _BOUNDS[name].short]


def hoarded(before: dict[str, float], after: dict[str, float]) -> tuple[str, str] | None:
    """What was short until somebody had gone, as code and text; None if going made no difference."""
    for name in short(before):
        freed = before[name] - after[name]
        if freed >= _BOUNDS[name].hoarded:
            return name, f"{freed:.0%} of the sandbox's {_BOUNDS[name].what}"
    return None


def clean_up(uid: int, scratch: str) -> None:
    """Remove what a user's processes, all gone, have left behind."""
    command = [sys.executable, "-I", "-S", str(Path(cleanup.__file__)), scratch, *_FOLDERS]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            command, user=uid, group=uid, extra_groups=[], cwd="/", timeout=_TIMEOUT_S, check=False, env=_ENVIRONMENT,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


def _processes() -> float:
    for folder in _PIDS:
        with contextlib.suppress(OSError, ValueError):
            return int((folder / "pids.current").read_text()) / int((folder / "pids.max").read_text())
    return 0.0
