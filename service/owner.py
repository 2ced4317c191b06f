"""Who runs a job, told so that another process can find out whether it still lives."""

import functools
import os
import socket
from pathlib import Path

from db.records import Owner


def this_process() -> Owner:
    """This process as an owner of jobs."""
    pid = os.getpid()
    return Owner(host=_host(), pid=pid, started=_started(pid) or "unknown")


def is_dead(owner: Owner) -> bool:
    """Whether the owner certainly runs no more. Nothing is known of processes on other hosts: they count as alive."""
    name, _, boot = owner.host.partition("#")
    own_name, _, own_boot = _host().partition("#")
    if name != own_name:
        return False
    return boot != own_boot or _started(owner.pid) != owner.started


@functools.cache
def _host() -> str:
    """Host name and boot: after a reboot, nobody from before lives."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()}#{boot}"


def _started(pid: int) -> str | None:
    """When the process began, in the kernel's ticks since boot; None if there is no such process or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and parentheses
    return None if fields[0] in ("Z", "X") else fields[19]
