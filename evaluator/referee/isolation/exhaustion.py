"""Finds resources that the sandbox has run out of, and whether a candidate hoards them.

A candidate is to blame if there is enough of the resource once the candidate is gone. Files, processes and System V
shared memory are limited for the whole sandbox only. A candidate that hoards them would starve the runners of the task,
which would then seem to be at fault.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import cleanup

_FOLDERS = ("/dev/shm",)  # noqa: S108 - folders that every user may write to, beside the scratch folder
_TIMEOUT_S = 20.0
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
_PIDS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/pids"))


@dataclass(frozen=True)
class Room:
    """What the file system of the scratch folder had left when the evaluation began: bytes, and files.

    A sandbox without a file system of its own shares it with all else on the host, which fills most of many disks.
    """

    free_bytes: int
    free_files: int

    @classmethod
    def of(cls, scratch: str) -> "Room":
        """What is left now."""
        disk = os.statvfs(scratch)
        return cls(disk.f_bavail * disk.f_frsize, disk.f_favail)


@dataclass(frozen=True)
class Bound:
    """The limits for one resource, as shares of all that the sandbox has.

    The resource is short if more than `short` is in use. A candidate that held `hoarded` or more is to blame.
    """

    what: str
    short: float
    hoarded: float


_BOUNDS = {
    "disk": Bound("space for files", 0.75, 0.5),
    "files": Bound("room for more files", 0.75, 0.5),
    "processes": Bound("processes", 0.75, 0.5),
    "shared_memory": Bound("memory (System V shared memory)", 0.125, 0.125),
}


def used(scratch: str, memory_bytes: int, first_uid: int, room: Room) -> dict[str, float]:
    """The share of each resource that is in use.

    Of files and their space it is the share of what there was when the evaluation began (`room`), of System V shared
    memory what uids from `first_uid` on hold.
    """
    left = Room.of(scratch)
    shared = sum(int(row.get("rss", row["size"])) for row in cleanup.sysv("shm") if int(row["uid"]) >= first_uid)
    return {
        "disk": max(0.0, 1 - left.free_bytes / max(1, room.free_bytes)),
        "files": max(0.0, 1 - left.free_files / room.free_files) if room.free_files else 0.0,
        "processes": _processes(),
        "shared_memory": shared / memory_bytes,
    }


def short(before: dict[str, float]) -> list[str]:
    """The names of the resources that are short."""
    return [name for name, share in before.items() if share > _BOUNDS[name].short]


def named(resources: list[str]) -> str:
    """The resources in words."""
    return " and ".join(_BOUNDS[name].what for name in resources)


def hoarded(before: dict[str, float], after: dict[str, float]) -> tuple[str, str] | None:
    """The short resource that a candidate's end has freed, as code and text; None if its end made no difference."""
    for name in short(before):
        freed = before[name] - after[name]
        if freed >= _BOUNDS[name].hoarded:
            return name, f"{freed:.0%} of the sandbox's {_BOUNDS[name].what}"
    return None


def clean_up(uids: Iterable[int], scratch: str) -> None:
    """Remove the files and System V objects that these users' processes have left behind. All of them have ended."""
    command = [sys.executable, "-I", "-S", str(Path(cleanup.__file__)), scratch, *_FOLDERS]
    deadline = time.monotonic() + _TIMEOUT_S
    running = []
    for uid in uids:
        with contextlib.suppress(OSError):
            running.append(
                subprocess.Popen(
                    command, user=uid, group=uid, extra_groups=[], cwd="/", env=_ENVIRONMENT,
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )
            )  # fmt: skip
    for process in running:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _processes() -> float:
    for folder in _PIDS:
        with contextlib.suppress(OSError, ValueError):
            return int((folder / "pids.current").read_text()) / int((folder / "pids.max").read_text())
    return 0.0
