"""Who owns a container: the host process that made it, never mistaken for a later one with the same id."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessIdentity:
    """A process: id, start time (clock ticks since boot), and the boot and the pid namespace in which these hold."""

    pid: int
    started: int
    boot: str
    namespace: str

    def to_label(self) -> str:
        """One string for a container's label."""
        return f"{self.pid}:{self.started}:{self.boot}:{self.namespace}"

    @classmethod
    def from_label(cls, label: str) -> "ProcessIdentity | None":
        """The owner that `to_label` wrote, or None for anything else."""
        parts = label.split(":")
        if len(parts) != 4 or not (parts[0].isdigit() and parts[1].isdigit()):
            return None
        return cls(int(parts[0]), int(parts[1]), parts[2], parts[3])


def this_process() -> ProcessIdentity:
    """The calling process as an owner."""
    pid = os.getpid()
    return ProcessIdentity(pid, _start_time(pid) or 0, _boot_id(), _pid_namespace())


def same_boot(owner: ProcessIdentity) -> bool:
    """Whether the owner belongs to this machine, as it runs now."""
    return owner.boot == _boot_id()


def is_gone(owner: ProcessIdentity, *, container_runs: bool) -> bool:
    """Whether the owner certainly lives no more.

    Owners in another pid namespace of this boot cannot be judged and count as alive. Those of another boot may be of
    another machine that shares the daemon, so only their stopped containers count as left behind.
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
