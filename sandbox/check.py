"""Checks a sandbox's promises on this machine by running a program in the sandbox that tries to break each one."""

import contextlib
import json
import random
import secrets
import socket
import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sandbox.base import Command, Completed, Limits, Promise, Sandbox
from sandbox.environment import COMMAND_ENVIRONMENT

PROBE = Path(__file__).parent / "probe"

_DISK_MB, _MEMORY_MB, _PROCESSES, _OUTPUT_BYTES, _WALL_S = 64, 512, 24, 100_000, 1.0
_KNOWN_VARIABLES = {*COMMAND_ENVIRONMENT, "HOME", "TMPDIR", "PYTHONPATH", "HOSTNAME", "PWD", "LC_CTYPE"}
_KNOWN_VARIABLES |= {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"}


@dataclass(frozen=True)
class PromiseCheck:
    """The check of one promise on this machine. `kept` is None if the sandbox does not make the promise."""

    promise: Promise
    kept: bool | None
    detail: str


def check_promises(
    sandbox: Sandbox,
    *,
    image_variables: Collection[str] = (),
    progress: Callable[[str], None] = lambda line: None,
) -> list[PromiseCheck]:
    """Check every promise of a sandbox. This takes some seconds.

    Args:
        sandbox: the sandbox.
        image_variables: the environment variables that the sandbox's image sets itself.
        progress: is called with one line for each promise.

    Raises:
        SandboxUnavailable: the sandbox cannot run anything at present.
    """
    checks = []
    known = {*_KNOWN_VARIABLES, *(image_variables if sandbox.name == "docker" else ())}
    probes: dict[Promise, _Check] = {**_CHECKS, Promise.NO_HOST_ENVIRONMENT: partial(_no_host_environment, known=known)}
    for promise in Promise:
        if promise not in sandbox.promises:
            checks.append(PromiseCheck(promise, None, f"the {sandbox.name} sandbox does not promise this here"))
            continue
        progress(promise.value)
        try:
            kept, detail = probes[promise](sandbox)
        except _ProbeError as error:
            kept, detail = False, str(error)
        checks.append(PromiseCheck(promise, kept, detail))
    return checks


_Check = Callable[[Sandbox], tuple[bool, str]]


class _ProbeError(Exception):
    """The probe ended without an answer."""


def _run(sandbox: Sandbox, *args: str, limits: Limits | None = None) -> Completed:
    command = Command(PROBE, args=args, limits=limits or Limits(wall_s=60, memory_mb=2048), label=f"check {args[0]}")
    return sandbox.run(command)


def _ask(sandbox: Sandbox, *args: str, limits: Limits | None = None) -> dict[str, Any]:
    done = _run(sandbox, *args, limits=limits)
    if done.exit_code != 0:
        tail = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise _ProbeError(f"the probe ended with {done.exit_code}: {' '.join(tail)}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _network(sandbox: Sandbox) -> tuple[bool, str]:
    with _listening() as (port, name):
        answer = _ask(sandbox, "network", str(port), name)
    kept = not answer["reached"] and answer["interfaces"] == ["lo"] and answer["routes"] == 0
    return (
        kept,
        f"interfaces {answer['interfaces']}, {answer['routes']} routes, reached on the host: {answer['reached']}",
    )


@contextlib.contextmanager
def _listening() -> Iterator[tuple[int, str]]:
    """Open a TCP port on the host's loopback interface and an abstract socket that accept connections."""
    name = f"kernelwright-check-{secrets.token_hex(8)}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind("\0" + name)
        unix.listen()
        yield tcp.getsockname()[1], name


def _read_only_root(sandbox: Sandbox) -> tuple[bool, str]:
    folders = ("/", "/usr", "/usr/local/bin", "/etc", "/opt", "/root", "/var", "/harness", "/harness/probe", "/mnt")
    answer = _ask(sandbox, "write_root", *folders)
    kept = not answer["written"] and not answer["writable_mounts"]
    return kept, f"written: {answer['written']}, writable mounts: {answer['writable_mounts']}"


def _no_host_files(sandbox: Sandbox) -> tuple[bool, str]:
    with tempfile.TemporaryDirectory() as folder:
        canary = Path(folder) / "canary"
        canary.write_text("of the host")
        Path(folder).chmod(0o755)
        canary.chmod(0o644)
        found = _ask(sandbox, "host_files", str(canary), str(Path(__file__).resolve()))["found"]
    return not found, f"found of two files that everyone may read on the host: {found}"


def _no_host_environment(sandbox: Sandbox, *, known: Collection[str]) -> tuple[bool, str]:
    unknown = [name for name in _ask(sandbox, "environment")["names"] if name not in known]
    return not unknown, f"variables that are not the sandbox's own: {unknown}"


def _bounded_disk(sandbox: Sandbox) -> tuple[bool, str]:
    limits = Limits(wall_s=60, memory_mb=2048, disk_mb=_DISK_MB)
    written = _ask(sandbox, "fill_disk", str(_DISK_MB * 8), limits=limits)["written_mb"]
    return written <= _DISK_MB * 3, f"{written} MB written in all places, {_DISK_MB} MB allowed in the scratch folder"


def _bounded_memory(sandbox: Sandbox) -> tuple[bool, str]:
    limits = Limits(wall_s=60, memory_mb=_MEMORY_MB)
    done = _run(sandbox, "fill_memory", str(_MEMORY_MB * 4), limits=limits)
    held = json.loads(done.stdout)["held_mb"] if done.exit_code == 0 else 0
    kept = held <= _MEMORY_MB and (done.out_of_memory or done.exit_code != 0)
    return kept, f"{held} MB held by a tree of processes, {_MEMORY_MB} MB allowed; out of memory: {done.out_of_memory}"


def _bounded_processes(sandbox: Sandbox) -> tuple[bool, str]:
    limits = Limits(wall_s=60, memory_mb=2048, processes=_PROCESSES)
    alive = _ask(sandbox, "fork_many", str(_PROCESSES * 4), limits=limits)["alive"]
    return alive <= _PROCESSES, f"{alive} processes alive at once, {_PROCESSES} allowed"


def _bounded_output(sandbox: Sandbox) -> tuple[bool, str]:
    done = _run(sandbox, "flood", limits=Limits(wall_s=30, memory_mb=512, output_bytes=_OUTPUT_BYTES))
    kept = done.output_truncated and len(done.stdout) <= _OUTPUT_BYTES and not done.timed_out
    return kept, f"{len(done.stdout)} bytes kept of endless output, then killed after {done.wall_s:.1f} s"


def _wall_clock(sandbox: Sandbox) -> tuple[bool, str]:
    done = _run(sandbox, "never_end", limits=Limits(wall_s=_WALL_S, memory_mb=512))
    return done.timed_out and done.wall_s < _WALL_S + 5, f"killed after {done.wall_s:.1f} s, {_WALL_S:.0f} s allowed"


def _nothing_left(sandbox: Sandbox) -> tuple[bool, str]:
    seconds = f"{random.randint(100_000, 999_999)}.{random.randint(100_000, 999_999)}"  # noqa: S311 a name, no secret
    left_inside = _ask(sandbox, "leave_daemon", seconds)["left"]
    running = [path for path in Path("/proc").glob("[0-9]*/cmdline") if seconds in _read_text(path)]
    detail = f"{left_inside} daemon left inside, {len(running)} of them running afterwards"
    return left_inside == 1 and not running, detail


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _separate_uids(sandbox: Sandbox) -> tuple[bool, str]:
    reached = _ask(sandbox, "separate_uids")["reached"]
    return not reached, f"a process of another uid reached of its maker: {reached}"


def _no_new_privileges(sandbox: Sandbox) -> tuple[bool, str]:
    kept = bool(_ask(sandbox, "privileges")["no_new_privileges"])
    return kept, f"the kernel's flag is {'set' if kept else 'not set'}"


_CHECKS: dict[Promise, _Check] = {
    Promise.NO_NETWORK: _network,
    Promise.READ_ONLY_ROOT: _read_only_root,
    Promise.NO_HOST_FILES: _no_host_files,
    Promise.BOUNDED_DISK: _bounded_disk,
    Promise.BOUNDED_MEMORY: _bounded_memory,
    Promise.BOUNDED_PROCESSES: _bounded_processes,
    Promise.BOUNDED_OUTPUT: _bounded_output,
    Promise.WALL_CLOCK: _wall_clock,
    Promise.NOTHING_LEFT_RUNNING: _nothing_left,
    Promise.SEPARATE_UIDS: _separate_uids,
    Promise.NO_NEW_PRIVILEGES: _no_new_privileges,
}
