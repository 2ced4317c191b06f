"""`python3 -m probe WHAT ARGS...`: tries one thing and prints what came of it as one JSON object."""

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

_MEGABYTE = 1024 * 1024
_OWN_FILE_SYSTEMS = {"tmpfs", "proc", "devpts", "mqueue", "devtmpfs", "cgroup", "cgroup2", "sysfs"}


def network(port: str, abstract_socket: str) -> dict[str, Any]:
    """Which interfaces there are, and whether a server on the host's loopback or an abstract socket can be reached."""
    reached = []
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), timeout=2):
        reached.append("tcp")
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as unix:
        unix.connect("\0" + abstract_socket)
        reached.append("abstract unix socket")
    interfaces = [name for _, name in socket.if_nameindex()]
    routes = len(Path("/proc/net/route").read_text().splitlines()[1:])
    return {"reached": reached, "interfaces": interfaces, "routes": routes}


def write_root(*folders: str) -> dict[str, Any]:
    """Which of the folders can be written, and which mounted file systems of the host's disks are writable."""
    written = []
    for folder in folders:
        path = Path(folder) / "kernelwright-was-here"
        with contextlib.suppress(OSError):
            path.write_text("x")
            path.unlink()
            written.append(folder)
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    open_mounts = [mount[1] for mount in mounts if "rw" in mount[3].split(",") and mount[2] not in _OWN_FILE_SYSTEMS]
    return {"written": written, "writable_mounts": open_mounts}


def host_files(*paths: str) -> dict[str, Any]:
    """Which of the host's files can be read, directly or through another process's root."""
    roots = ["", *(f"/proc/{entry.name}/root" for entry in Path("/proc").iterdir() if entry.name.isdigit())]
    found = []
    for root in roots:
        for path in paths:
            with contextlib.suppress(OSError):
                Path(root + path).read_bytes()
                found.append(root + path)
    return {"found": found}


def environment() -> dict[str, Any]:
    """The names of all environment variables that this or any other visible process has."""
    names = set(os.environ)
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            names.update(entry.partition(b"=")[0].decode() for entry in path.read_bytes().split(b"\0") if entry)
    return {"names": sorted(names)}


def fill_disk(up_to_mb: str) -> dict[str, Any]:
    """How many MB can be written, in files of 16 MB, wherever it is possible."""
    written = 0
    places = [os.environ["TMPDIR"], "/dev/shm", "/dev", "/run", "/var/tmp", "/mnt"]  # noqa: S108 to be tried
    for place in places:
        for number in range(int(up_to_mb)):
            if written >= int(up_to_mb) * _MEGABYTE:
                break
            try:
                with (Path(place) / f"fill-{number}").open("wb", buffering=0) as file:
                    for _ in range(16):
                        written += file.write(bytes(_MEGABYTE))
            except OSError:
                break
    return {"written_mb": written // _MEGABYTE}


def fill_memory(up_to_mb: str) -> dict[str, Any]:
    """How many MB a tree of processes of 64 MB each can hold at once."""
    children = []
    for _ in range(int(up_to_mb) // 64):
        ready, tell = os.pipe()
        children.append(os.fork())
        if children[-1] == 0:
            block = bytearray(os.urandom(4096) * (64 * 256))
            os.write(tell, b"x")
            time.sleep(60)
            os._exit(len(block) > 0)
        os.close(tell)
        os.read(ready, 1)
        os.close(ready)
    alive = [child for child in children if os.waitpid(child, os.WNOHANG) == (0, 0)]
    return {"held_mb": 64 * len(alive)}


def fork_many(up_to: str) -> dict[str, Any]:
    """How many processes can live at once."""
    alive = 1
    for _ in range(int(up_to)):
        try:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
        except OSError:
            break
        alive += 1
    return {"alive": alive}


def flood() -> NoReturn:
    """Write without end."""
    block = b"x" * _MEGABYTE
    while True:
        os.write(1, block)


def never_end() -> NoReturn:
    """Run for ever and ignore every signal that can be ignored."""
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_IGN)
    while True:
        pass


def leave_daemon(seconds: str) -> dict[str, Any]:
    """Leave `sleep SECONDS` behind, detached from everything."""
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        if os.fork() == 0:
            os.setsid()
            os.execvp("sleep", ["sleep", seconds])  # noqa: S606 no shell is wanted
        os._exit(0)
    os.wait()
    time.sleep(0.2)
    names = [path.read_bytes().replace(b"\0", b" ").decode() for path in Path("/proc").glob("[0-9]*/cmdline")]
    return {"left": sum(name.startswith(f"sleep {seconds}") for name in names)}


def separate_uids() -> dict[str, Any]:
    """Whether a process of another uid is out of reach of its maker, and its maker out of its own."""
    answer, tell = os.pipe()
    maker = os.getpid()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(20002, 20002, 20002)
        os.setresuid(20002, 20002, 20002)
        reached = []
        with contextlib.suppress(OSError):
            os.kill(maker, 0)
            reached.append("signal")
        with contextlib.suppress(OSError), Path(f"/proc/{maker}/mem").open("rb"):
            reached.append("memory")
        with contextlib.suppress(OSError):
            os.setresuid(0, 0, 0)
            reached.append("uid 0")
        os.write(tell, json.dumps(reached).encode())
        time.sleep(60)
        os._exit(0)
    os.close(tell)
    told = os.read(answer, 4096)
    if not told:
        raise PermissionError("no process can be given another uid")
    reached_by_child = json.loads(told)
    with Path(f"/proc/{child}/mem").open("rb"):
        pass
    os.kill(child, signal.SIGKILL)
    return {"reached": reached_by_child}


def privileges() -> dict[str, Any]:
    """The kernel's flag that no program can raise rights."""
    lines = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return {"no_new_privileges": lines["NoNewPrivs"] == "1"}


_PROBES: dict[str, Callable[..., dict[str, Any]]] = {
    probe.__name__: probe
    for probe in (
        network,
        write_root,
        host_files,
        environment,
        fill_disk,
        fill_memory,
        fork_many,
        flood,
        never_end,
        leave_daemon,
        separate_uids,
        privileges,
    )
}

if __name__ == "__main__":
    print(json.dumps(_PROBES[sys.argv[1]](*sys.argv[2:])), flush=True)
