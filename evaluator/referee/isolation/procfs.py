"""Stopping, continuing and killing every process of a runner, and reading a stopped one's memory."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch  # not at run time: `warmup` needs this module before torch may be imported

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_libc = ctypes.CDLL(None, use_errno=True)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


GENERATED_CODE = "[generated code]"


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class ForeignMemoryError(Exception):
    """Another process's memory could not be read, or written to, where it said that its output lies."""


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


def read_memory(pid: int, address: int, into: "torch.Tensor") -> None:
    """Fill `into`, contiguous bytes, from another process's memory (process_vm_readv).

    Raises:
        ForeignMemoryError: the range is not readable there.
    """
    size = into.numel()
    start = into.data_ptr()
    done = 0
    while done < size:
        local = _IoVec(start + done, size - done)
        remote = _IoVec(address + done, size - done)
        count = _libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if count <= 0:
            reason = os.strerror(ctypes.get_errno()) if count < 0 else "nothing there"
            raise ForeignMemoryError(f"{size} bytes at {address:#x}: {reason}")
        done += count


def flip_memory(pid: int, addresses: Sequence[int], bits: bytes) -> None:
    """Change these bits of as many bytes at each address, in another process (process_vm_writev).

    Raises:
        ForeignMemoryError: not all of these places may be written to there.
    """
    size, change = len(bits), bits * len(addresses)
    held = (ctypes.c_ubyte * len(change))()
    local = _IoVec(ctypes.addressof(held), len(held))
    remote = (_IoVec * len(addresses))(*(_IoVec(address, size) for address in addresses))
    for step in (_libc.process_vm_readv, _libc.process_vm_writev):
        if step is _libc.process_vm_writev:
            held[:] = [byte ^ changed for byte, changed in zip(held, change, strict=True)]
        count = step(pid, ctypes.byref(local), 1, remote, len(addresses), 0)
        if count != len(held):
            reason = os.strerror(ctypes.get_errno()) if count < 0 else "nothing there"
            raise ForeignMemoryError(f"{len(addresses)} places from {addresses[0]:#x}: {reason}")


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


def page_faults(pid: int) -> int:
    """Minor and major page faults of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[7]) + int(fields[9])


def resident_bytes(pid: int) -> int:
    """The memory that a process has in use; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def executable_mappings(pid: int) -> list[tuple[int, int, str]]:
    """What code a process could run: start, end and file of each executable mapping, in order of address.

    Memory of no file is `GENERATED_CODE`; names in brackets are no files either.
    """
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").split("\n")[:-1]:
        fields = line.split(None, 5)
        if "x" in fields[1]:
            start, _, end = fields[0].partition("-")
            name = fields[5].strip() if len(fields) > 5 else GENERATED_CODE
            found.append((int(start, 16), int(end, 16), name))
    return found


def executable_files(pid: int) -> set[str]:
    """The files of these mappings."""
    return {name for _, _, name in executable_mappings(pid)}
