"""Where a runner lives and builds."""

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import RunnerFailed, names_role, of_end
from ..protocol import framing
from . import procfs
from .cpu_account import Audit


def choose(scratch: str, role: str) -> tuple[str, str]:
    """A runner's home, which nobody can foresee, and the path under which it builds.

    A candidate builds under a path that stays the same from one of its runners to the next, a link into its home: what
    was built under one path is built again under another.
    """
    home = f"{scratch}/{role}-{os.urandom(4).hex()}"
    if role != "candidate":
        return home, f"{home}/built"
    link = f"{scratch}/{role}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(link)  # noqa: PTH108
    os.symlink(f"{home}/built", link)  # noqa: PTH211
    return home, link


_LOG_BYTES = 16 * 1024 * 1024
_LOG_TAIL_BYTES = 4000
_DYING_S = 1.0  # a process with much memory that has been killed may take so long to end
_STILL_NS = 20_000  # what a process that stands still may seem to use
_NO_WRAP_S = procfs.no_wrap_s()


@dataclass(frozen=True)
class House:
    """What all runners of one evaluation share."""

    nursery: socket.socket
    scratch: str
    memory_bytes: int
    separate_uids: bool
    audit: Audit
    lock: threading.Lock  # held while the nursery is asked and answers


@dataclass(frozen=True)
class Turn:
    """What a runner answered; seconds from when it was let go until the answer was there, and until it had stopped."""

    body: bytes
    answered_s: float
    seconds: float


class Leash:
    """The processes of one runner. All are stopped whenever it is not its turn, but between `resume` and `pause`."""

    @names_role
    def __init__(self, house: House, role: str, uid: int) -> None:
        self.role = role
        self._house = house
        self.uid = uid if house.separate_uids else None
        self._stopped: list[int] = []
        self._newest, self._frozen_at = -1, 0.0  # the newest process when all of them were last seen stopped, and when
        self._aside = False  # whether it may run now though it is nobody's turn
        self._used_ns: dict[int, int] = {}  # processor time of all of it at the end of its last turn
        self._sock, theirs = socket.socketpair()
        self._log = os.memfd_create(f"log-{role}", os.MFD_CLOEXEC)
        self.home, self.built = choose(house.scratch, role)
        with house.lock:
            framing.send(
                house.nursery,
                {
                    "op": "spawn",
                    "uid": self.uid,
                    "home": self.home,
                    "built": self.built,
                    "file_bytes": max(_LOG_BYTES, 512 * 1024 * 1024),
                    # Address space is mostly reserved, not used: leave room for thread stacks, arenas and mapped files.
                    "address_bytes": house.memory_bytes * 2 + 16 * 1024**3,
                },
            )
            socket.send_fds(house.nursery, [b"x"], [theirs.fileno(), self._log])
            spawned = framing.receive(house.nursery)
        theirs.close()
        if "pid" not in spawned:
            self._sock.close()
            os.close(self._log)
            raise RunnerFailed("no_room", f"no process could be made for it: {spawned.get('error')}", role=role)
        self.pid = int(spawned["pid"])
        self._pidfd = os.pidfd_open(self.pid)
        self._poll = select.poll()
        self._poll.register(self._sock, select.POLLIN)
        self._poll.register(self._pidfd, select.POLLIN)
        self._freeze()

    def members(self) -> list[int]:
        """Every living process of this runner."""
        if self.uid is not None:
            return procfs.pids_of_uid(self.uid)
        return procfs.descendants([self.pid])

    def resume(self) -> None:
        """Let it go on with what it has been sent until `pause`, unless it has answered."""
        if not self._poll.poll(0):
            self._aside, self._used_ns = True, {}
            procfs.thaw(self._stopped)

    @names_role
    def pause(self) -> None:
        """Stop it, whatever it is doing.

        Raises:
            RunnerFailed: it does not stop.
        """
        if not self._aside:
            return
        self._aside = False
        known = self._stopped
        procfs.stop(known)
        newest = procfs.newest_pid()
        if not procfs.wait_stopped(known) or newest != self._newest:
            self._freeze()
            self._house.audit.allow(self._stopped, born=set(self._stopped) - set(known))
        procfs.wait_off_processor(self._stopped)
        self._used_ns = {pid: procfs.cpu_time_ns(pid) for pid in self._stopped}
        self._newest, self._frozen_at = newest, time.perf_counter()

    @names_role
    def see_still(self) -> None:
        """See that it has stood still since its turn ended: while its answer was read, for example.

        Raises:
            RunnerFailed: it has not.
        """
        if not self._stood_still():
            raise RunnerFailed("out_of_turn", "processes of it went on after they had been stopped")

    def _stood_still(self) -> bool:
        return all(procfs.cpu_time_ns(pid) <= used_ns + _STILL_NS for pid, used_ns in self._used_ns.items())

    def log_tail(self) -> str:
        """The end of what the runner printed."""
        size = os.fstat(self._log).st_size
        start = max(0, size - _LOG_TAIL_BYTES)
        return os.pread(self._log, _LOG_TAIL_BYTES, start).decode("utf-8", "replace")

    def close(self) -> bool:
        """Kill the runner with everything it started; whether all of it went."""
        gone = procfs.kill_all(self.members)
        if self.uid is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self._reap()
        self._sock.close()
        os.close(self._pidfd)
        os.close(self._log)
        return gone

    def _turn(self, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> Turn:
        """Let the runner go until its whole answer is here and it has been seen to stop."""
        audit, whole_sandbox = self._house.audit, self.role == "candidate"
        known = self._stopped
        deadline = time.monotonic() + timeout_s
        audit.let_go(known, whole_sandbox=whole_sandbox)
        if not (self._stood_still() and all(map(procfs.is_stopped, known))):
            self._refuse_to_begin()
        start = time.perf_counter()
        procfs.thaw(known)
        if meanwhile is not None:
            meanwhile()
        body = self._await(timeout_s, deadline)
        answered_s = time.perf_counter() - start
        procfs.stop(known)
        # Neither part of an answer stops the clock nor an answer whose sender goes on: until it has been seen to stop.
        stopped = procfs.wait_stopped(known)
        seconds = time.perf_counter() - start
        newest = procfs.newest_pid()
        # Where nobody was forked since all were stopped there is nobody to look for: half of what a short call costs.
        # (A runner that has just been spawned may not have been found yet.)
        nobody_new = newest == self._newest and start + seconds - self._frozen_at < _NO_WRAP_S and self.pid in known
        if not (nobody_new and stopped):
            self._freeze()
        if not stopped or set(self._stopped) - set(known) or procfs.newest_pid() != newest:
            self._freeze()
            if whole_sandbox or not stopped or set(self._stopped) - set(known):
                # Someone may have gone on working until now: one who was told to stop, or who was not. (Who has forked
                # in a baseline's turn and is not found is the candidate's, and must not make its calls longer.)
                seconds = time.perf_counter() - start
        everyone = {*known, *self._stopped}
        procfs.wait_off_processor(everyone)
        self._used_ns = {pid: procfs.cpu_time_ns(pid) for pid in everyone}
        self._newest, self._frozen_at = newest, time.perf_counter()
        audit.stopped()
        return Turn(body, answered_s, seconds)

    def _refuse_to_begin(self) -> None:
        """Something of it runs that has been stopped: it is being killed, or has seen to it itself."""
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        if ended.poll(_DYING_S * 1000):
            raise self._death()
        raise RunnerFailed("out_of_turn", "processes of it that had been stopped went on before it was their turn")

    def _await(self, timeout_s: float, deadline: float) -> bytes:
        ready = self._poll.poll(timeout_s * 1000)
        if not ready:
            raise RunnerFailed("timed_out", f"no answer within {timeout_s:.3g} s", self.log_tail())
        if all(fd != self._sock.fileno() for fd, _ in ready):
            raise self._death()
        try:
            return framing.receive_bytes(self._sock, deadline=deadline)
        except framing.WireError as error:
            if str(error) == "connection closed":
                raise self._death() from None
            raise RunnerFailed("protocol", f"forged or broken answer: {error}", self.log_tail()) from None
        except TimeoutError:
            raise RunnerFailed("timed_out", f"the {self.role} runner stopped in the middle of an answer") from None
        except OSError:
            raise self._death() from None

    def _death(self) -> RunnerFailed:
        return of_end(self._reap(wait_s=1.0), self.log_tail())

    def _reap(self, wait_s: float = 0.0) -> int | None:
        deadline = time.monotonic() + wait_s
        while True:
            with self._house.lock:
                framing.send(self._house.nursery, {"op": "reap", "pid": self.pid})
                status = framing.receive(self._house.nursery)["status"]
            if status is not None or time.monotonic() > deadline:
                return None if status is None else int(status)
            time.sleep(0.01)

    def _freeze(self) -> None:
        try:
            self._stopped = procfs.freeze(self.members)
        except procfs.FreezeError as error:
            raise RunnerFailed("protocol", str(error)) from None
