"""The referee's hold on a runner: start its processes, ask it for work, let it go under the clock, stop and kill it."""

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..errors import RunnerFailed, names_role, of_end, of_refusal
from ..platforms.base import Account, InputBuffer, Platform
from ..protocol import framing
from ..protocol.tensors import TensorRow, TooLarge, Tree, TreeError
from . import procfs
from .calls import Call, CallRequest


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
class RunnerShared:
    """What all runners of one evaluation share."""

    fork_server: socket.socket
    scratch: str
    memory_bytes: int
    separate_uids: bool
    platform: Platform
    account: Account
    lock: threading.Lock  # held while the fork server is asked and answers


@dataclass(frozen=True)
class Turn:
    """What a runner answered; seconds from when it was let go until the answer was there, and until it had stopped."""

    body: bytes
    answered_s: float
    seconds: float


class RunnerHandle:
    """One runner with all its processes, which are stopped whenever it is neither answering nor, between `resume` and
    `pause`, doing what was begun beside other work.
    """

    @names_role
    def __init__(self, shared: RunnerShared, role: str, uid: int) -> None:
        self.role = role
        self.platform = shared.platform
        self.input_buffer: InputBuffer | None = None
        self._shared = shared
        self.uid = uid if shared.separate_uids else None
        self.stopped: list[int] = []
        self._newest, self._frozen_at = -1, 0.0  # the newest process when all of them were last seen stopped, and when
        self._aside = False  # whether it may run now though it is nobody's turn
        self._used_ns: dict[int, int] = {}  # processor time of all of it at the end of its last turn
        self._sock, theirs = socket.socketpair()
        self._log = os.memfd_create(f"log-{role}", os.MFD_CLOEXEC)
        self.home, self.built = choose(shared.scratch, role)
        with shared.lock:
            framing.send(
                shared.fork_server,
                {
                    "op": "spawn",
                    "uid": self.uid,
                    "home": self.home,
                    "built": self.built,
                    "file_bytes": max(_LOG_BYTES, 512 * 1024 * 1024),
                    "address_bytes": shared.platform.address_space_bytes(shared.memory_bytes),
                },
            )
            socket.send_fds(shared.fork_server, [b"x"], [theirs.fileno(), self._log])
            spawned = framing.receive(shared.fork_server)
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

    @property
    def memory_bytes(self) -> int:
        """What the sandbox may use."""
        return self._shared.memory_bytes

    def members(self) -> list[int]:
        """Every living process of this runner."""
        if self.uid is not None:
            return procfs.pids_of_uid(self.uid)
        return procfs.descendants([self.pid])

    def resume(self) -> None:
        """Let it go on with what it has been sent until `pause`, unless it has answered."""
        if not self._poll.poll(0):
            self._aside, self._used_ns = True, {}
            procfs.thaw(self.stopped)

    @names_role
    def pause(self) -> None:
        """Stop it, whatever it is doing.

        Raises:
            RunnerFailed: it does not stop.
        """
        if not self._aside:
            return
        self._aside = False
        known = self.stopped
        procfs.stop(known)
        newest = procfs.newest_pid()
        if not procfs.wait_stopped(known) or newest != self._newest:
            self._freeze()
            self._shared.account.allow(self.stopped, born=set(self.stopped) - set(known))
        procfs.wait_off_processor(self.stopped)
        self._used_ns = {pid: procfs.cpu_time_ns(pid) for pid in self.stopped}
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
        if self.input_buffer is not None:
            self.input_buffer.close()
        return gone

    def _turn(self, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> Turn:
        """Let the runner go until its whole answer is here and it has been seen to stop."""
        account, whole_sandbox = self._shared.account, self.role == "candidate"
        known = self.stopped
        deadline = time.monotonic() + timeout_s
        account.begin_turn(known, whole_sandbox=whole_sandbox)
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
        if not stopped or set(self.stopped) - set(known) or procfs.newest_pid() != newest:
            self._freeze()
            if whole_sandbox or not stopped or set(self.stopped) - set(known):
                # Someone may have gone on working until now: one who was told to stop, or who was not. (Who has forked
                # in a baseline's turn and is not found is the candidate's, and must not make its calls longer.)
                seconds = time.perf_counter() - start
        everyone = {*known, *self.stopped}
        procfs.wait_off_processor(everyone)
        self._used_ns = {pid: procfs.cpu_time_ns(pid) for pid in everyone}
        self._newest, self._frozen_at = newest, time.perf_counter()
        account.stopped()
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
            with self._shared.lock:
                framing.send(self._shared.fork_server, {"op": "reap", "pid": self.pid})
                status = framing.receive(self._shared.fork_server)["status"]
            if status is not None or time.monotonic() > deadline:
                return None if status is None else int(status)
            time.sleep(0.01)

    def _freeze(self) -> None:
        try:
            self.stopped = procfs.freeze(self.members)
        except procfs.FreezeError as error:
            raise RunnerFailed("protocol", str(error)) from None

    @names_role
    def ask(self, message: framing.Message, *, timeout_s: float) -> framing.Message:
        """Have the runner do something untimed, and leave it stopped.

        Raises:
            RunnerFailed: it died, failed, lied about the protocol or took too long.
        """
        return self.exchange(message, timeout_s)[0]

    @names_role
    def begin(self, message: framing.Message) -> None:
        """`ask` for something to be done beside other work, between `resume` and `pause`, until `finish`.

        Raises:
            RunnerFailed: it died.
        """
        self._send(message, 60)
        self._shared.account.allow(self.stopped)

    @names_role
    def finish(self, *, timeout_s: float) -> framing.Message:
        """Wait for the answer to what was begun; the runner is left stopped.

        Raises:
            RunnerFailed: it died, failed, lied about the protocol or took too long.
        """
        self.pause()
        reply, _ = self._answer(timeout_s)
        self._shared.account.allow([])
        return reply

    @names_role
    def handover_s(self) -> float:
        """The time of a question that asks for nothing; a timed call holds more than that besides the model's.

        Raises:
            RunnerFailed: it died, failed or lied.
        """
        return self.exchange({"op": "release"}, timeout_s=60)[1].seconds

    @names_role
    def attach(self, input_buffer: InputBuffer) -> None:
        """Share an input buffer with the runner, in place of the one before."""
        if self.input_buffer is not None:
            self.input_buffer.close()
        self.input_buffer = input_buffer
        try:
            framing.send(self._sock, {"op": "attach", "size": input_buffer.size})
            socket.send_fds(self._sock, [b"x"], [input_buffer.fd])
        except OSError:
            raise self._death() from None
        self._turn(60)

    @names_role
    def call(
        self,
        tree: Tree,
        contents: list[torch.Tensor],
        *,
        seed: int,
        timeout_s: float,
        keep: bool = False,
        state: Sequence[str] = (),
        quiet: Callable[[], None] | None = None,
        before: Callable[[], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Call:
        """One call of the model under the platform's clock; the arguments are those of `CallRequest`.

        Raises:
            RunnerFailed: it died, failed or took too long.
        """
        request = CallRequest(tree, contents, seed, timeout_s, keep, state, quiet, before, meanwhile)
        return self.platform.call(self, request)

    def give(
        self, message: framing.Message, tree: Tree, contents: list[torch.Tensor], *, timeout_s: float
    ) -> framing.Message:
        """`ask` with a tree put into the input buffer."""
        assert self.input_buffer is not None
        placed = self.input_buffer.put(tree, contents)
        return self.ask({**message, "tree": placed.to_json()}, timeout_s=timeout_s)

    def reveal(self, message: framing.Message, *, timeout_s: float) -> Tree:
        """`ask` for a value; the tree of where it lies in the runner's memory."""
        return self.tree_of(self.ask(message, timeout_s=timeout_s).get("tree"))

    def reveal_each(self, message: framing.Message, *, timeout_s: float) -> list[Tree]:
        """`ask` for several values; the trees of where they lie in the runner's memory."""
        return self.trees(self.ask(message, timeout_s=timeout_s))

    def trees(self, reply: framing.Message) -> list[Tree]:
        """The trees of an answer that holds several values."""
        trees = reply.get("trees")
        if not isinstance(trees, list):
            raise RunnerFailed("protocol", f"forged or broken answer of the {self.role} runner: no list of trees")
        return [self.tree_of(tree) for tree in trees]

    @names_role
    def read(self, row: TensorRow) -> torch.Tensor:
        """The bytes of a tensor (its whole span) that the stopped runner holds.

        Raises:
            RunnerFailed: nothing readable lies there.
        """
        return self.platform.read(self, row)

    @names_role
    def flip(self, row: TensorRow, elements: Sequence[int]) -> None:
        """Give elements of a tensor's span other values; done twice, they are as before.

        Raises:
            RunnerFailed: what lies there cannot be written to.
        """
        self.platform.flip(self, row, elements)

    def exchange(
        self, message: framing.Message, timeout_s: float, meanwhile: Callable[[], None] | None = None
    ) -> tuple[framing.Message, Turn]:
        """Send a message, let the runner go until it has answered, stop it: its answer, and how long that took.

        `meanwhile` is called once the runner runs.

        Raises:
            RunnerFailed: it died, failed, lied about the protocol or took too long.
        """
        self._send(message, timeout_s)
        return self._answer(timeout_s, meanwhile)

    def _send(self, message: framing.Message, timeout_s: float) -> None:
        self._sock.settimeout(timeout_s)
        try:
            # It is stopped and cannot read this yet: one wake-up less than sending to a running process.
            framing.send(self._sock, message)
        except OSError:
            raise self._death() from None

    def _answer(self, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> tuple[framing.Message, Turn]:
        turn = self._turn(timeout_s, meanwhile)
        try:
            reply = framing.parse(turn.body)
        except framing.WireError as error:
            raise RunnerFailed("protocol", f"forged or broken answer: {error}", self.log_tail()) from None
        if reply.get("ok") is not True:
            raise of_refusal(reply, self.log_tail())
        return reply, turn

    def tree_of(self, told: object) -> Tree:
        """The tree that a runner's answer holds, read without trusting anything in it.

        Raises:
            RunnerFailed: it is none, or too large.
        """
        try:
            # Every tensor may be read, compared in a wider type, and kept for a while.
            return Tree.from_json(told, limit_bytes=self._shared.memory_bytes // 2)
        except TooLarge as error:
            raise RunnerFailed("out_of_memory", f"the {self.role} runner made {error}") from None
        except TreeError as error:
            raise RunnerFailed("protocol", f"forged or broken answer of the {self.role} runner: {error}") from None
