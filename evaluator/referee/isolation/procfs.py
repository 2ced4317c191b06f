"""Stopping, continuing and killing every process of a runner, and what the kernel says of processes."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch  # not at run time: nothing may import torch before the platform has set what torch reads

_PROC = Path("/proc")
_libc = ctypes.CDLL(None, use_errno=True)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class FreezeError(Exception):
    """Processes of a runner went on running although they were told to stop."""


def pids_of_uid(uid: int) -> list[int]:
    """Every living process whose real uid is `uid`."""
    found = []
    for entry in os.listdir(_PROC):  # noqa: PTH208 - hot path, strings suffice
        if entry.isdigit():
            with contextlib.suppress(OSError):
                # The owner of /proc/PID is root for a process that is not dumpable, so ask for the uid itself.
                if _status_uid(entry) == uid:
                    found.append(int(entry))
    return found


def _read_start(name: str) -> bytes:
    """The start of a small file of /proc, in as few steps as can be: calls wait for this."""
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 256)
    finally:
        os.close(fd)


def _thread_states(pid: int | str) -> Iterator[bytes]:
    """The one letter that the kernel has for the state of each thread of a process (proc(5)); none if it is gone."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - hot path
    except (FileNotFoundError, ProcessLookupError):
        return
    for task in tasks:
        # A thread that ends meanwhile says nothing of the others.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = _read_start(f"/proc/{pid}/task/{task}/stat")
            after = text.rindex(b")") + 2  # a name in brackets comes first
            yield text[after : after + 1]


def _status_uid(pid: str) -> int:
    with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
        text = file.read(2048)
    # A leader that has exited may have threads that go on.
    if (b"\nState:\tZ" in text or b"\nState:\tX" in text) and not _has_living_thread(pid):
        return -1
    start = text.index(b"\nUid:") + 5
    return int(text[start : text.index(b"\n", start)].split()[0])


def newest_pid() -> int:
    """The process or thread id given out last in this pid namespace (proc(5), /proc/loadavg): it tells of any fork."""
    return int(_read_start("/proc/loadavg").rsplit(None, 1)[1])


def _has_living_thread(pid: str) -> bool:
    return any(state not in (b"Z", b"X") for state in _thread_states(pid))


def descendants(roots: Iterable[int]) -> list[int]:
    """The living processes among `roots` and everything below them."""
    parents: dict[int, int] = {}
    for entry in os.listdir(_PROC):  # noqa: PTH208
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError):
                fields = (_PROC / entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] not in "ZX" or _has_living_thread(entry):
                    parents[int(entry)] = int(fields[1])
    wanted = set(roots)
    grew = True
    while grew:
        fresh = {pid for pid, parent in parents.items() if parent in wanted and pid not in wanted}
        wanted |= fresh
        grew = bool(fresh)
    return [pid for pid in wanted if pid in parents]


def freeze(members: Callable[[], list[int]], *, timeout_s: float = 5.0) -> list[int]:
    """Stop every process that `members` names until none runs, and return them.

    Scans again after each round of signals, because a process may have forked in between; a stopped one cannot.

    Raises:
        FreezeError: something still runs after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        pids = members()
        running = [pid for pid in pids if not is_stopped(pid)]
        if not running:
            return pids
        stop(running)
        wait_stopped(running)
        if time.monotonic() > deadline:
            raise FreezeError(f"processes {running} did not stop within {timeout_s} s")


def wait_stopped(pids: Iterable[int], *, timeout_s: float = 0.005) -> bool:
    """Wait until processes that were told to stop have done so; whether they have."""
    deadline = time.monotonic() + timeout_s
    for pid in pids:
        while not is_stopped(pid):
            if time.monotonic() > deadline:
                return False
            os.sched_yield()  # the processor may be this one
    return True


def wait_off_processor(pids: Iterable[int]) -> None:
    """Wait until stopped processes have done their last steps in the kernel: it does so to tell their system calls."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                _read_start(f"/proc/{pid}/task/{task}/syscall")


def no_wrap_s(pid_max: Path = _PROC / "sys/kernel/pid_max") -> float:
    """A time in which nobody can fork so often that process ids come round: 2 µs an id, a quarter second at most."""
    try:
        return min(0.25, int(pid_max.read_text()) * 2e-6)
    except (OSError, ValueError):
        return 0.0


def stop(pids: Iterable[int]) -> None:
    """Tell processes to stop, without waiting until they have."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)


def is_stopped(pid: int) -> bool:
    """Whether every thread of a process is stopped (or the process is gone)."""
    return all(state in (b"T", b"Z", b"X") for state in _thread_states(pid))


def thaw(pids: Iterable[int]) -> None:
    """Let stopped processes go on."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def kill_all(members: Callable[[], list[int]], *, timeout_s: float = 5.0) -> bool:
    """Kill every process that `members` names; whether all were gone in time."""
    deadline = time.monotonic() + timeout_s
    while pids := members():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def same_bytes(left: "torch.Tensor", right: "torch.Tensor") -> bool:
    """Whether two contiguous tensors of bytes are equal: memcmp, 20 times as fast as comparing element by element."""
    size = left.numel()
    return size == right.numel() and _libc.memcmp(left.data_ptr(), right.data_ptr(), size) == 0


def count_stopped_threads(pids: Iterable[int]) -> int:
    """How many stopped threads these processes have."""
    return sum(state == b"T" for pid in pids for state in _thread_states(pid))


def cpu_time_ns(pid: int) -> int:
    """Processor time of a process so far, that of its ended threads included; 0 if it is gone.

    By the clock that each process has (clock_getcpuclockid(3); its number as the kernel makes it: the process id, and
    2 for time on a processor).
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return 0
