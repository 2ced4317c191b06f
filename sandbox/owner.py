"""The identity of the process that owns a container. A later process with the same id has another identity."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessIdentity:
    """A process: id, start time in clock ticks since boot, and the boot and pid namespace in which both hold."""

    pid: int
    started: int
    boot: str
    namespace: str

    def to_label(self) -> str:
        """The identity as the value of a container's label."""
        return f"{self.pid}:{self.started}:{self.boot}:{self.namespace}"

    @classmethod
    def from_label(cls, label: str) -> "ProcessIdentity | None":
        """The identity that `to_label` wrote; None for any other text."""
        parts = label.split(":")
        if len(parts) != 4 or not (parts[0].isdigit() and parts[1].isdigit()):
            return None
        return cls(int(parts[0]), int(parts[1]), parts[2], parts[3])


def this_process() -> ProcessIdentity:
    """The identity of the calling process."""
    pid = os.getpid()
    return ProcessIdentity(pid, _start_time(pid) or 0, _boot_id(), _pid_namespace())


def same_boot(owner: ProcessIdentity) -> bool:
    """Whether the process ran on this machine since its last boot."""
    return owner.boot == _boot_id()


def is_gone(owner: ProcessIdentity, *, container_runs: bool) -> bool:
    """Whether the process has certainly ended.

    A process in another pid namespace of this boot cannot be checked and counts as alive. A process of another boot may
    belong to another machine that shares the Docker daemon, so it counts as gone only if its container has stopped.
    """
    if not same_boot(owner):
        return not container_runs
    if owner.namespace != _pid_namespace():
        return False
    return _start_time(owner.pid) != owner.started


def _start_time(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat (see proc(5)); None when there is no such process, or only its zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    return Path("/proc/self/ns/pid").readlink().name.removeprefix("pid:[").removesuffix("]")
