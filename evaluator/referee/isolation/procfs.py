"""Processes through /proc and signals: stop, continue and kill all processes of a runner, and read their state."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch  # not at run time: torch may be imported only after the platform has set the variables that it reads

_PROC = Path("/proc")
_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_TIMERSLACK = 29
_LOOKS_EVERY_S = 20e-6
_SCANS = 3  # before all processes are signalled at once
_EXITING = 0x4  # PF_EXITING, in the flags of a thread's stat
_SIGKILL_PENDING = 1 << (signal.SIGKILL - 1)
_MOST_WATCHED = 2 * (os.cpu_count() or 1) + 16  # threads; a process may have more than we may have files
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class FreezeError(Exception):
    """Processes of a runner kept running although they were sent SIGSTOP."""


def pids_of_uid(uid: int) -> list[int]:
    """The living processes whose real uid is `uid`."""
    found = []
    for entry in os.listdir(_PROC):  # noqa: PTH208 - hot path, strings suffice
        if entry.isdigit():
            with contextlib.suppress(OSError):
                # The owner of /proc/PID is root for a process that is not dumpable, so the uid is read from `status`.
                if _status_uid(entry) == uid:
                    found.append(int(entry))
    return found


def _read_start(name: str) -> bytes:
    """The first 256 bytes of a file of /proc, in as few system calls as possible, because timed calls wait for this."""
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 256)
    finally:
        os.close(fd)


def _thread_states(pid: int | str) -> Iterator[bytes]:
    """The state letter of each thread of a process (proc(5)); nothing if the process is gone."""
    for thread in _threads_of(pid):
        # A thread may end meanwhile. The others still count.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = _read_start(f"{thread}/stat")
            after = text.rindex(b")") + 2  # a name in brackets comes first
            yield text[after : after + 1]


def _status_uid(pid: str) -> int:
    with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
        text = file.read(2048)
    # The main thread may have exited while other threads go on.
    if (b"\nState:\tZ" in text or b"\nState:\tX" in text) and not _has_living_thread(pid):
        return -1
    start = text.index(b"\nUid:") + 5
    return int(text[start : text.index(b"\n", start)].split()[0])


def is_ending(pid: int) -> bool:
    """Whether a process is gone, or runs no more of its program: each thread has been killed or is exiting.

    The kernel takes seconds to free gigabytes, and meanwhile the process has no memory to read and yet has not ended.
    Nothing but its end can follow: no thread comes back from there (proc(5): flags in `stat`, `SigPnd` in `status`).
    """
    for thread in _threads_of(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = _read_start(f"{thread}/stat")
            fields = text[text.rindex(b")") + 2 :].split()
            if fields[0] in (b"Z", b"X") or int(fields[6]) & _EXITING:
                continue
            if not _has_pending_kill(thread):
                return False
    return True


def _has_pending_kill(thread: str) -> bool:
    with open(f"{thread}/status", "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(b"SigPnd:"):
                return bool(int(line.split()[1], 16) & _SIGKILL_PENDING)
    return False


def newest_pid() -> int:
    """The process or thread id given out last in this pid namespace (proc(5), /proc/loadavg). Each fork changes it."""
    return int(_read_start("/proc/loadavg").rsplit(None, 1)[1])


def _has_living_thread(pid: str) -> bool:
    return any(state not in (b"Z", b"X") for state in _thread_states(pid))


def descendants(roots: Iterable[int]) -> list[int]:
    """The living processes among `roots` and all their descendants."""
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


def freeze(
    members: Callable[[], list[int]], *, at_once: Callable[[int], bool] | None = None, timeout_s: float = 5.0
) -> list[int]:
    """Stop the processes that `members` returns until none of them runs.

    It scans again after each round of signals, because a process may have forked in between. A stopped process cannot.
    A scan during which something has forked may have missed what forks and ends all the time.

    Args:
        members: finds the living processes.
        at_once: sends a signal to all of them at once, for those that a scan may miss; whether it was sent.
        timeout_s: the most that it may take.

    Returns:
        The stopped processes.

    Raises:
        FreezeError: a process still runs after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    scans, sent = 0, False
    while True:
        newest = newest_pid()
        pids = members()
        running = [pid for pid in pids if not is_stopped(pid)]
        forked = newest_pid() != newest
        if not running and (at_once is None or sent or not forked):
            return pids
        scans += 1
        # What only stops late, on a busy machine, is waited for: sending to all at once takes processor time.
        if at_once is not None and forked and scans >= _SCANS:
            sent = at_once(signal.SIGSTOP)
        else:
            stop(running)
        wait_stopped(running)
        if time.monotonic() > deadline:
            raise FreezeError(f"processes {running} did not stop within {timeout_s} s")


def wait_stopped(pids: Iterable[int], *, timeout_s: float = 0.005) -> bool:
    """Wait until processes that were sent SIGSTOP have stopped.

    A thread needs a processor to stop, which may be the referee's, so the referee sleeps between two looks. With
    sched_yield(2) in its place, a thread that had run for longer than the referee waited for up to a tick (4 ms).

    Returns:
        Whether all have stopped within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    for pid in pids:
        while not is_stopped(pid):
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOKS_EVERY_S)
    return True


class ThreadWatch:
    """Sees processes stop by files of /proc that stay open, for the end of a timed call waits for that.

    With two threads, one of which spins, that takes about 70 µs; `wait_stopped`, which opens the files for each look,
    takes 140 to 190 µs.
    """

    def __init__(self) -> None:
        self._loadavg = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        self._pids: list[int] = []
        self._states: list[int] = []  # an open file for each thread
        self._every_thread = True

    def watch(self, pids: Iterable[int]) -> None:
        """Watch all threads that these processes have now, and no others."""
        self._pids = list(pids)
        # All files are opened anew: one that is open belongs to a thread, and another one may have its number now.
        self._forget()
        threads = [thread for pid in self._pids for thread in _threads_of(pid)]
        self._every_thread = len(threads) <= _MOST_WATCHED
        try:
            for thread in threads if self._every_thread else ():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    self._states.append(os.open(f"{thread}/stat", os.O_RDONLY | os.O_CLOEXEC))
        except OSError:  # this process has as many open files as it may have
            self._every_thread = False

    def wait_stopped(self, *, timeout_s: float = 0.005) -> bool:
        """Wait until the threads that are watched have stopped, or are gone.

        Returns:
            Whether they have within `timeout_s`.
        """
        if not self._every_thread:
            return wait_stopped(self._pids, timeout_s=timeout_s)
        deadline = time.monotonic() + timeout_s
        for file in self._states:
            while not _is_stopped_by(file):
                if time.monotonic() > deadline:
                    return False
                time.sleep(_LOOKS_EVERY_S)
        return True

    def newest_pid(self) -> int:
        """See the function of this name."""
        return int(os.pread(self._loadavg, 256, 0).rsplit(None, 1)[1])

    def close(self) -> None:
        """Close the files."""
        os.close(self._loadavg)
        self._forget()

    def _forget(self) -> None:
        while self._states:
            os.close(self._states.pop())


def _threads_of(pid: int | str) -> list[str]:
    """The folders of a process's threads in /proc; none if it is gone."""
    try:
        return [f"/proc/{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - hot path
    except (FileNotFoundError, ProcessLookupError):
        return []


def _is_stopped_by(file: int) -> bool:
    """Whether a thread is stopped or gone, by its open `stat`."""
    try:
        text = os.pread(file, 256, 0)
    except ProcessLookupError:
        return True
    return text[text.rindex(b")") + 2 :][:1] in (b"T", b"Z", b"X")


def sleep_exactly() -> None:
    """Let short sleeps of the calling thread end in time: the kernel adds up to 50 µs otherwise (prctl(2))."""
    _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def wait_off_processor(pids: Iterable[int]) -> None:
    """Wait until stopped processes have left the processor: reading `syscall` makes the kernel wait for that."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                _read_start(f"/proc/{pid}/task/{task}/syscall")


def no_wrap_s(pid_max: Path = _PROC / "sys/kernel/pid_max") -> float:
    """A time too short for process ids to wrap around by forking: `min(0.25 s, 2 µs * pid_max)`; 0 if it is unknown."""
    try:
        return min(0.25, int(pid_max.read_text()) * 2e-6)
    except (OSError, ValueError):
        return 0.0


def stop(pids: Iterable[int]) -> None:
    """Send SIGSTOP to processes, without waiting until they have stopped."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)


def is_stopped(pid: int) -> bool:
    """Whether every thread of a process is stopped (or the process is gone)."""
    return all(state in (b"T", b"Z", b"X") for state in _thread_states(pid))


def thaw(pids: Iterable[int]) -> None:
    """Continue stopped processes."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to processes, without waiting until they are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_all(
    members: Callable[[], list[int]],
    *,
    at_once: Callable[[int], bool] | None = None,
    timeout_s: float = 5.0,
    dying_s: float = 60.0,
) -> bool:
    """Kill the processes that `members` returns until there are none.

    A killed process runs no more of its program, however long a busy machine takes to end it, so only a process that
    is seen for the first time shows that killing does not keep up.

    Args:
        members: finds the living processes.
        at_once: sends a signal to all of them at once, for those that fork faster than a scan finds them.
        timeout_s: the time after which no further process may be found.
        dying_s: the time within which killed processes must be gone.

    Returns:
        Whether all were gone in time.
    """
    began = time.monotonic()
    killed: set[int] = set()
    scans = 0
    while pids := members():
        fresh = bool(killed) and not killed.issuperset(pids)
        scans += 1
        if at_once is not None and fresh and scans > _SCANS:
            at_once(signal.SIGKILL)
        kill(pids)
        killed.update(pids)
        if time.monotonic() - began > (timeout_s if fresh else dying_s):
            return False
        time.sleep(0.001)
    return True


def same_bytes(left: "torch.Tensor", right: "torch.Tensor") -> bool:
    """Whether two contiguous tensors of bytes are equal, by memcmp: 20 times as fast as comparing elements."""
    size = left.numel()
    return size == right.numel() and _libc.memcmp(left.data_ptr(), right.data_ptr(), size) == 0


def count_stopped_threads(pids: Iterable[int]) -> int:
    """The number of stopped threads of these processes."""
    return sum(state == b"T" for pid in pids for state in _thread_states(pid))


def cpu_time_ns(pid: int) -> int:
    """Processor time of a process so far, with that of its ended threads; 0 if the process is gone.

    It is read from the process's own CPU clock (clock_getcpuclockid(3)). The kernel makes the clock's number out of the
    process id and 2, which stands for time on a processor.
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return 0
