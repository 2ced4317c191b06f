"""Who runs a job, told so that another process can find out whether it still lives."""

import socket

from db.records import Owner
from sandbox import owner as processes


def this_process() -> Owner:
    """This process as an owner of jobs."""
    process = processes.this_process()
    return Owner(host=socket.gethostname(), pid=process.pid, started=process.to_label())


def is_gone_here(owner: Owner) -> bool:
    """Whether the owner was a process of this host, since it was last started, and is gone. Another host may go by the
    name of ours."""
    process = processes.Owner.from_label(owner.started)
    return process is not None and processes.same_boot(process) and is_dead(owner)


def lives_here(owner: Owner) -> bool:
    """Whether the owner is certainly a process of this host that is there, however long it has been silent."""
    process, own = processes.Owner.from_label(owner.started), processes.this_process()
    if process is None or owner.host != socket.gethostname():
        return False
    same = (process.boot, process.namespace) == (own.boot, own.namespace)
    return same and not processes.is_gone(process, container_runs=False)


def is_dead(owner: Owner) -> bool:
    """Whether the owner certainly runs no more. Nothing is known of processes on other hosts: they count as alive."""
    if owner.host != socket.gethostname():
        return False
    process = processes.Owner.from_label(owner.started)
    return process is not None and processes.is_gone(process, container_runs=False)
