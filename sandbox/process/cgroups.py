"""Control groups, if this user may create them: the kernel's limits on the memory and processes of a command."""

import contextlib
import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path

from sandbox.base import Limits

_MOUNT = Path("/sys/fs/cgroup")
_PREFIX = "kernelwright-"
_COUNTER = itertools.count()


@dataclass(frozen=True)
class Cgroup:
    """A control group of one command: one folder (version 2) or one for each controller (version 1)."""

    folders: tuple[Path, ...]

    def entries(self) -> list[str]:
        """The files into which a process writes `0` to join."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process of the group for want of memory."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    for line in (folder / name).read_text().splitlines():
                        key, _, value = line.partition(" ")
                        if key == "oom_kill" and int(value) > 0:
                            return True
        return False

    def remove(self) -> None:
        """Remove the group. Its processes have ended, but the kernel may need a moment before it allows this."""
        for folder in self.folders:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                if not folder.exists():
                    break
                time.sleep(0.01)


def make_cgroup(limits: Limits) -> Cgroup | None:
    """Create a group with limits on memory and processes. The result is None if this user cannot create one."""
    name = f"{_PREFIX}{os.getpid()}-{next(_COUNTER)}"
    memory = str(limits.memory_mb * 1024 * 1024)
    pids = str(limits.processes)
    try:
        if (_MOUNT / "cgroup.controllers").exists():
            _remove_stale(_MOUNT)
            _enable_controllers()
            folder = _MOUNT / name
            settings = {"memory.max": memory, "pids.max": pids, "memory.swap.max": "0"}
            return _make({folder: settings})
        for controller in ("memory", "pids"):
            _remove_stale(_MOUNT / controller)
        bounds = {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory}
        return _make({_MOUNT / "memory" / name: bounds, _MOUNT / "pids" / name: {"pids.max": pids}})
    except OSError:
        return None


def _make(groups: dict[Path, dict[str, str]]) -> Cgroup:
    made: list[Path] = []
    try:
        for folder, settings in groups.items():
            folder.mkdir()
            made.append(folder)
            for file, value in settings.items():
                try:
                    (folder / file).write_text(value)
                except FileNotFoundError:
                    if "sw" not in file:  # this kernel may lack the accounting of swap
                        raise
    except OSError:
        Cgroup(tuple(made)).remove()
        raise
    return Cgroup(tuple(made))


def _enable_controllers() -> None:
    enabled = (_MOUNT / "cgroup.subtree_control").read_text().split()
    for controller in ("memory", "pids"):
        if controller not in enabled:
            (_MOUNT / "cgroup.subtree_control").write_text(f"+{controller}")


def _remove_stale(parent: Path) -> None:
    """Remove the empty groups of processes that ended without removing them."""
    for folder in parent.glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
