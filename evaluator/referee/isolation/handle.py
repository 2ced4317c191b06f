"""The referee's handle on a runner: it starts the runner, sends it messages, times its answers, stops and kills it."""

import contextlib
import errno
import functools
import hashlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch

from ..errors import RunnerFailed, names_role, of_closed, of_end, of_refusal
from ..platforms.base import Account, InputBuffer, Places, Platform
from ..protocol import call_messages, framing
from ..protocol.baselines import BASELINES
from ..protocol.tensors import TensorRow, TooLarge, Tree, TreeError
from . import procfs
from .calls import Call, CallRequest
from .memory_kills import MemoryKills

_OF_THE_TARGET = (errno.ESRCH, errno.ENOENT, errno.EIO, errno.EFAULT)
"""Errors of a look at another process that say what is there, not what this process has."""

_Seen = TypeVar("_Seen")
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _or_its_end(method: _Method) -> _Method:
    """Make a method that looks at the stopped runner tell the runner's end, if that is why it failed.

    Only a runner that lives is told to be unreadable. Other errors, that this process may not look or has no room to,
    are no fault of the runner's.
    """

    @functools.wraps(method)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except (RunnerFailed, OSError) as failure:
            self._refuse_if_ended()
            if isinstance(failure, RunnerFailed) or failure.errno not in _OF_THE_TARGET:
                raise
            raise RunnerFailed("unreadable", f"the process cannot be looked at: {failure}") from None

    return cast("_Method", told)


FOREIGN_ROLES = ("candidate", "champion")
"""Roles whose runners have loaded foreign code: the candidate that is judged, and the one that it is compared with."""


def choose(scratch: str, role: str, source: str) -> tuple[str, str]:
    """Choose a runner's home folder, whose name cannot be predicted, and the path under which it builds.

    All runners of the same foreign source build under the same path, a link into the home folder, because files that
    were built under one path would be built again under another.

    Returns:
        The home folder and the build path.
    """
    if role not in FOREIGN_ROLES:
        home = f"{scratch}/{role}-{os.urandom(4).hex()}"
        return home, f"{home}/built"
    home = f"{scratch}/candidate-{os.urandom(4).hex()}"  # nothing tells foreign code which role it has
    link = f"{scratch}/built-{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(link)  # noqa: PTH108
    os.symlink(f"{home}/built", link)  # noqa: PTH211
    return home, link


_LOG_BYTES = 16 * 1024 * 1024
_LOG_TAIL_BYTES = 4000
_DYING_S = 1.0  # until it shows that a process has been killed
_ENDING_S = 60.0  # until a killed process has ended: the kernel frees all its memory first
_LOOKS_EVERY_S = 0.02
_UNREAD_BYTES = 64 * 1024  # that the socket of a stopped runner holds for sure (Linux: 208 KiB by default)
_STILL_NS = 20_000  # processor time that a stopped process may seem to use
_NO_WRAP_S = procfs.no_wrap_s()


@dataclass(frozen=True)
class RunnerShared:
    """The resources that all runners of one evaluation share."""

    fork_server: socket.socket
    scratch: str
    memory_bytes: int
    separate_uids: bool
    platform: Platform
    account: Account
    lock: threading.Lock  # held during each exchange with the fork server
    kills: MemoryKills


@dataclass(frozen=True)
class TimedReply:
    """One answer of a runner.

    `answered_s` counts from the moment when the runner was continued until the answer had arrived; `seconds`, until the
    runner had stopped.
    """

    body: bytes
    answered_s: float
    seconds: float
    began: float  # by `time.perf_counter`, just before the runner was continued


class RunnerHandle:
    """One runner with all its processes.

    They run only while the runner answers a message, or between `resume` and `pause`, while it works beside the referee
    on a message sent with `begin`. At all other times they are stopped.
    """

    @names_role
    def __init__(self, shared: RunnerShared, role: str, uid: int, source: str) -> None:
        self.role = role
        self.platform = shared.platform
        self.input_buffer: InputBuffer | None = None
        self._shared = shared
        self.uid = uid if shared.separate_uids else None
        self.stopped: list[int] = []
        self._newest, self._frozen_at = -1, 0.0  # the newest pid when all were last seen stopped, and the time of that
        self._aside = False  # whether it runs now, between `resume` and `pause`
        self._used_ns: dict[int, int] = {}  # processor time of each of its processes at the end of its last turn
        self._kills = shared.kills.count()  # kills for memory when it was last seen alive
        self._sock, theirs = socket.socketpair()
        self._log = os.memfd_create("log", os.MFD_CLOEXEC)
        self.home, self.built = choose(shared.scratch, role, source)
        try:
            self.pid = self._spawn(theirs)
            self._pidfd = os.pidfd_open(self.pid)
        except (RunnerFailed, ProcessLookupError) as error:
            failure = error if isinstance(error, RunnerFailed) else self._death(gone=True)
            self._sock.close()
            os.close(self._log)
            raise failure from None
        finally:
            theirs.close()
        self._poll = select.poll()
        self._poll.register(self._sock, select.POLLIN)
        self._poll.register(self._pidfd, select.POLLIN)
        self._threads = procfs.ThreadWatch()
        try:
            self._freeze()
        except RunnerFailed:
            self.close()
            raise

    def _spawn(self, theirs: socket.socket) -> int:
        """Have the fork server fork a runner that has this end of the connection; its pid."""
        shared = self._shared
        message = {
            "op": "spawn",
            "uid": self.uid,
            "home": self.home,
            "built": self.built,
            "file_bytes": max(_LOG_BYTES, 512 * 1024 * 1024),
            "address_bytes": shared.platform.address_space_bytes(shared.memory_bytes),
            "packages": bool(self.role in BASELINES and BASELINES[self.role].modules),
        }
        try:
            with shared.lock:
                framing.send(shared.fork_server, message)
                socket.send_fds(shared.fork_server, [b"x"], [theirs.fileno(), self._log])
                spawned = framing.receive(shared.fork_server)
        except (OSError, framing.WireError):
            spawned = {"error": "the process that forks runners has ended"}
        if "pid" not in spawned:
            raise RunnerFailed("no_room", f"no process could be made for it: {spawned.get('error')}")
        return int(spawned["pid"])

    @property
    def has_ended(self) -> bool:
        """Whether its first process has ended, or is ending."""
        return procfs.is_ending(self.pid)

    @property
    def memory_bytes(self) -> int:
        """The sandbox's memory limit."""
        return self._shared.memory_bytes

    def members(self) -> list[int]:
        """The pids of all living processes of this runner."""
        if self.uid is not None:
            return procfs.pids_of_uid(self.uid)
        return procfs.descendants([self.pid])

    def resume(self) -> None:
        """Let the runner work on the message that it was sent until `pause`, unless it has answered already."""
        if not self._poll.poll(0):
            self._aside, self._used_ns = True, {}
            procfs.thaw(self.stopped)

    @names_role
    def pause(self) -> None:
        """Stop the runner after `resume`, whatever it is doing.

        Raises:
            RunnerFailed: it does not stop.
        """
        if not self._aside:
            return
        self._aside = False
        known = self.stopped
        procfs.stop(known)
        newest = procfs.newest_pid()
        seen_for_s = time.perf_counter() - self._frozen_at
        if not procfs.wait_stopped(known) or newest != self._newest or seen_for_s >= _NO_WRAP_S:
            self._freeze()
            self._shared.account.allow(self.stopped, born=set(self.stopped) - set(known))
        procfs.wait_off_processor(self.stopped)
        self._used_ns = {pid: procfs.cpu_time_ns(pid) for pid in self.stopped}
        self._newest, self._frozen_at = newest, time.perf_counter()

    @names_role
    @_or_its_end
    def see_still(self) -> None:
        """Check that the runner has not run since its turn ended, for example while its outputs were read.

        Raises:
            RunnerFailed: it has.
        """
        if not self._stood_still():
            raise RunnerFailed("out_of_turn", "processes of it went on after they had been stopped")

    def _stood_still(self) -> bool:
        return all(procfs.cpu_time_ns(pid) <= used_ns + _STILL_NS for pid, used_ns in self._used_ns.items())

    def log_tail(self) -> str:
        """The end of the runner's output to stdout and stderr."""
        size = os.fstat(self._log).st_size
        start = max(0, size - _LOG_TAIL_BYTES)
        return os.pread(self._log, _LOG_TAIL_BYTES, start).decode("utf-8", "replace")

    def kill(self) -> None:
        """Send SIGKILL to all processes of the runner without waiting for their end. `close` comes afterwards."""
        procfs.kill(self.members())

    def close(self) -> bool:
        """Kill the runner with all processes that it started.

        Returns:
            Whether all of them ended.
        """
        gone = procfs.kill_all(self.members, at_once=self._at_once)
        if self.uid is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self._reap()
        self._sock.close()
        os.close(self._pidfd)
        os.close(self._log)
        self._threads.close()
        if self.input_buffer is not None:
            self.input_buffer.close()
        return gone

    def _turn(
        self,
        timeout_s: float,
        meanwhile: Callable[[], None] | None = None,
        before: Callable[[], None] | None = None,
        answered: Callable[[], None] | None = None,
    ) -> TimedReply:
        """Continue the runner until its whole answer has arrived and all its processes have been seen to stop.

        Raises:
            RunnerFailed: the runner ran out of turn, died, took too long or sent a broken message.
        """
        account, whole_sandbox = self._shared.account, self.role == "candidate"
        known = self.stopped
        kills = self._shared.kills.count()
        deadline = time.monotonic() + timeout_s
        # Looking at every thread takes longer than anything else here. Behind `before` their clocks are enough.
        seen_stopped = before is not None and all(map(procfs.is_stopped, known))
        if before is not None:
            before()
        account.begin_turn(known, whole_sandbox=whole_sandbox)
        if not (self._stood_still() and (seen_stopped or all(map(procfs.is_stopped, known)))):
            self._refuse_to_begin()
        start = time.perf_counter()
        procfs.thaw(known)
        if meanwhile is not None:
            meanwhile()
        try:
            body = self._await(timeout_s, deadline)
        except RunnerFailed:
            self._shared.kills.note_turn(self.role, kills)
            raise
        answered_s = time.perf_counter() - start
        if answered is not None:
            answered()
        procfs.stop(known)
        # Stop the clock only after the whole answer has arrived and every process of the runner has been seen to stop.
        stopped = self._threads.wait_stopped()
        newest = self._threads.newest_pid()
        # If no process and no thread was made since all were last seen stopped, there is none to search for. The search
        # is half of a short call's cost. (A runner that has just been spawned may not be in `known` yet.)
        seen_for_s = time.perf_counter() - self._frozen_at
        none_new = newest == self._newest and seen_for_s < _NO_WRAP_S and self.pid in known
        if not none_new:
            self._threads.watch(known)
            stopped = self._threads.wait_stopped()
        seconds = time.perf_counter() - start
        if not (none_new and stopped):
            self._freeze()
        if not stopped or set(self.stopped) - set(known) or procfs.newest_pid() != newest:
            self._freeze()
            if whole_sandbox or not stopped or set(self.stopped) - set(known):
                # A process may have kept running until now (it stopped late, or was forked during the turn), so the
                # measured time is extended. An unknown fork during a baseline's turn does not extend it: that process
                # is the candidate's and must not make the baseline's calls longer.
                seconds = time.perf_counter() - start
        all_pids = {*known, *self.stopped}
        procfs.wait_off_processor(all_pids)
        self._used_ns = {pid: procfs.cpu_time_ns(pid) for pid in all_pids}
        self._newest, self._frozen_at = newest, time.perf_counter()
        account.stopped()
        self._kills = self._shared.kills.note_turn(self.role, kills)
        return TimedReply(body, answered_s, seconds, start)

    def _refuse_to_begin(self) -> None:
        """Raise the failure of a runner of which a stopped process runs: it is being killed, or was continued.

        Raises:
            RunnerFailed: always.
        """
        self._refuse_if_ended()
        raise RunnerFailed("out_of_turn", "processes of it that had been stopped went on before it was their turn")

    @names_role
    def _refuse_if_ended(self) -> None:
        """Check that the runner has not ended, nor ends now. It takes `_DYING_S` if the runner lives.

        Raises:
            RunnerFailed: it has ended.
        """
        if self._ends():
            raise self._death()

    def _ends(self) -> bool:
        """Whether the runner has ended. What has been killed is waited for, as long as its memory takes to be freed."""
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        began = time.monotonic()
        while not ended.poll(_LOOKS_EVERY_S * 1000):
            waited_s = time.monotonic() - began
            if waited_s > _DYING_S and (waited_s > _ENDING_S or not procfs.is_ending(self.pid)):
                return False
        return True

    def _too_late(self, message: str) -> RunnerFailed:
        """The failure of a runner that did not do in time what it should: it may have been killed meanwhile."""
        if procfs.is_ending(self.pid) and self._ends():
            return self._death(gone=True)
        return RunnerFailed("timed_out", message, self.log_tail())

    def _await(self, timeout_s: float, deadline: float) -> bytes:
        ready = self._poll.poll(timeout_s * 1000)
        if not ready:
            raise self._too_late(f"no answer within {timeout_s:.3g} s")
        if all(fd != self._sock.fileno() for fd, _ in ready):
            raise self._death()
        try:
            return framing.receive_last(self._sock, deadline=deadline)
        except framing.WireError as error:
            if str(error) == "connection closed":
                raise self._death() from None
            raise RunnerFailed("protocol", f"forged or broken answer: {error}", self.log_tail()) from None
        except TimeoutError:
            raise self._too_late(f"the {self.role} runner stopped in the middle of an answer") from None
        except OSError:
            raise self._death() from None

    def _death(self, *, gone: bool = False) -> RunnerFailed:
        """The failure of a runner whose connection is closed, or who is `gone` for certain: how it has ended."""
        if not gone and not self._ends():
            return of_closed(self.log_tail())
        status = self._reap(wait_s=1.0)
        return of_end(status, self.log_tail(), memory_ran_out=self._shared.kills.count() > self._kills)

    def _reap(self, wait_s: float = 0.0) -> int | None:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                with self._shared.lock:
                    framing.send(self._shared.fork_server, {"op": "reap", "pid": self.pid})
                    status = framing.receive(self._shared.fork_server)["status"]
            except (OSError, framing.WireError):  # the fork server is gone, and with it what it knew
                return None
            if status is not None or time.monotonic() > deadline:
                return None if status is None else int(status)
            time.sleep(0.01)

    @property
    def _at_once(self) -> Callable[[int], bool] | None:
        """What signals all processes of the runner at once; None if it has no user of its own."""
        return None if self.uid is None else self._signal_all

    def _signal_all(self, number: int) -> bool:
        try:
            with self._shared.lock:
                framing.send(self._shared.fork_server, {"op": "signal", "uid": self.uid, "number": int(number)})
                return framing.receive(self._shared.fork_server)["done"] is True
        except (OSError, framing.WireError):
            return False

    def _freeze(self) -> None:
        try:
            self.stopped = procfs.freeze(self.members, at_once=self._at_once)
        except procfs.FreezeError as error:
            raise self._too_late(str(error)) from None
        self._threads.watch(self.stopped)

    @names_role
    def ask(self, message: framing.Message, *, timeout_s: float) -> framing.Message:
        """Have the runner carry out an untimed command. It is stopped afterwards.

        Raises:
            RunnerFailed: the runner died, failed, sent a forged answer or took too long.
        """
        return self.exchange(message, timeout_s)[0]

    @names_role
    def begin(self, message: framing.Message) -> None:
        """Send a command that the runner carries out beside the referee's work, between `resume` and `pause`.

        `finish` waits for the answer.

        Raises:
            RunnerFailed: the runner died.
        """
        self._send(framing.encoded(message), 60)
        self._shared.account.allow(self.stopped)

    @names_role
    def finish(self, *, timeout_s: float) -> framing.Message:
        """Wait for the answer to the command that was sent with `begin`. The runner is stopped afterwards.

        Raises:
            RunnerFailed: the runner died, failed, sent a forged answer or took too long.
        """
        self.pause()
        reply, _ = self._answer(timeout_s)
        self._shared.account.allow([])
        return reply

    @names_role
    def attach(self, input_buffer: InputBuffer) -> float:
        """Share an input buffer with the runner, in place of the one before, which is closed.

        Returns:
            The seconds for which the runner ran.

        Raises:
            RunnerFailed: the runner died, could not map it, took too long or ran out of turn.
        """
        if self.input_buffer is not None:
            self.input_buffer.close()
        self.input_buffer = input_buffer
        return self._shared_with({"op": "attach"}, input_buffer.told, 60).seconds

    @names_role
    def share(self, message: framing.Message, told: list[tuple[int, int]], *, timeout_s: float) -> None:
        """`ask` with what the runner is to open: file descriptors, and the bytes behind each.

        Raises:
            RunnerFailed: as for `ask`.
        """
        self._shared_with(message, told, timeout_s)

    def _shared_with(self, message: framing.Message, told: list[tuple[int, int]], timeout_s: float) -> TimedReply:
        body = framing.encoded({**message, "sizes": [size for _, size in told]})

        def send() -> None:
            self._send(body, timeout_s)
            try:
                if told:
                    socket.send_fds(self._sock, [b"x"], [fd for fd, _ in told])
            except OSError:
                raise self._death() from None

        if len(body) > _UNREAD_BYTES:
            return self._answer(timeout_s, send)[1]
        send()
        return self._answer(timeout_s)[1]

    def empty_buffer(self) -> bool:
        """Give the memory of the input buffer back while the runner stands still; whether there was any of the host's.

        The runner has its inputs no longer.
        """
        return self.input_buffer is not None and self.input_buffer.empty()

    @names_role
    def call(
        self,
        tree: Tree,
        contents: list[torch.Tensor],
        *,
        seed: int,
        timeout_s: float,
        keep: int = 0,
        state: Sequence[str] = (),
        quiet: Callable[[], None] | None = None,
        before: Callable[[], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Call:
        """Call the model once under the platform's clock. The arguments are those of `CallRequest`.

        Raises:
            RunnerFailed: the runner died, failed or took too long.
        """
        request = CallRequest(tree, contents, seed, timeout_s, keep, state, quiet, before, meanwhile)
        return self.platform.call(self, request)

    def give(
        self, message: framing.Message, tree: Tree, contents: list[torch.Tensor], *, timeout_s: float
    ) -> framing.Message:
        """`ask` with a tree whose tensors are put into the input buffer.

        Raises:
            RunnerFailed: as for `ask`.
        """
        assert self.input_buffer is not None
        placed = self.input_buffer.put(tree, contents)
        return self.ask({**message, "tree": placed.to_json()}, timeout_s=timeout_s)

    def reveal(self, message: framing.Message, *, timeout_s: float) -> Tree:
        """`ask` for a value and return its tree, with the places of its tensors in the runner's memory.

        Raises:
            RunnerFailed: as for `ask`.
        """
        return self.tree_of(self.ask(message, timeout_s=timeout_s).get("tree"))

    def reveal_each(self, message: framing.Message, *, timeout_s: float) -> list[Tree]:
        """`ask` for several values and return their trees, with the places of tensors in the runner's memory.

        Raises:
            RunnerFailed: as for `ask`.
        """
        return self.trees(self.ask(message, timeout_s=timeout_s))

    def trees(self, reply: framing.Message) -> list[Tree]:
        """The trees of an answer that holds several values.

        Raises:
            RunnerFailed: the answer holds none, or one is too large.
        """
        trees = reply.get("trees")
        if not isinstance(trees, list):
            raise RunnerFailed("protocol", f"forged or broken answer of the {self.role} runner: no list of trees")
        return [self.tree_of(tree) for tree in trees]

    @names_role
    @_or_its_end
    def read(self, row: TensorRow) -> torch.Tensor:
        """The bytes of a tensor (its whole span), read from the memory of the stopped runner.

        Raises:
            RunnerFailed: the memory cannot be read.
        """
        return self.platform.read(self, row)

    @names_role
    @_or_its_end
    def flip(self, row: TensorRow, elements: Sequence[int]) -> None:
        """Change the values of elements of a tensor's span. A second call restores them.

        Raises:
            RunnerFailed: the memory cannot be written to.
        """
        self.platform.flip(self, row, elements)

    @names_role
    @_or_its_end
    def places(self, rows: Sequence[TensorRow]) -> Places:
        """Where tensors of the stopped runner lie.

        Raises:
            RunnerFailed: the runner has ended, or cannot be looked at.
        """
        return self.platform.places(self, rows)

    @names_role
    @_or_its_end
    def disturbance(self) -> float:
        """The platform's counter of what disturbs this runner.

        Raises:
            RunnerFailed: the runner has ended, or cannot be looked at.
        """
        return self.platform.disturbance(self)

    @names_role
    @_or_its_end
    def look(self, at: Callable[[int], _Seen]) -> _Seen:
        """What is seen of the runner's first process from outside, by its pid.

        Raises:
            RunnerFailed: the runner has ended, or cannot be looked at.
        """
        return at(self.pid)

    def exchange(
        self,
        message: framing.Message | bytes,
        timeout_s: float,
        meanwhile: Callable[[], None] | None = None,
        *,
        before: Callable[[], None] | None = None,
        answered: Callable[[], None] | None = None,
    ) -> tuple[framing.Message, TimedReply]:
        """Send a message, continue the runner until it has answered, and stop it.

        Args:
            message: the message, or its body.
            timeout_s: the most that the answer may take.
            meanwhile: is called once the runner runs.
            before: is called as late before the runner is continued as can be.
            answered: is called once the answer has arrived, before the runner is stopped.

        Returns:
            The answer, and the turn with its times.

        Raises:
            RunnerFailed: the runner died, failed, sent a forged answer or took too long.
        """
        body = message if isinstance(message, bytes) else framing.encoded(message)
        if len(body) <= _UNREAD_BYTES:
            # The runner is stopped and reads this later: one wake-up less than sending to a running process.
            self._send(body, timeout_s)
            return self._answer(timeout_s, meanwhile, before, answered)

        def send_then() -> None:
            self._send(body, timeout_s)
            if meanwhile is not None:
                meanwhile()

        return self._answer(timeout_s, send_then, before, answered)

    def _send(self, body: bytes, timeout_s: float) -> None:
        self._sock.settimeout(timeout_s)
        try:
            framing.send_body(self._sock, body)
        except TimeoutError:
            raise self._too_late(f"a message was not read within {timeout_s:.3g} s") from None
        except OSError:
            raise self._death() from None

    def _answer(
        self,
        timeout_s: float,
        meanwhile: Callable[[], None] | None = None,
        before: Callable[[], None] | None = None,
        answered: Callable[[], None] | None = None,
    ) -> tuple[framing.Message, TimedReply]:
        turn = self._turn(timeout_s, meanwhile, before, answered)
        try:
            binary = turn.body.startswith(call_messages.MARK)
            reply = call_messages.unpack(turn.body) if binary else framing.parse(turn.body)
        except framing.WireError as error:
            raise RunnerFailed("protocol", f"forged or broken answer: {error}", self.log_tail()) from None
        if reply.get("ok") is not True:
            raise of_refusal(reply, self.log_tail())
        return reply, turn

    @names_role
    def tree_of(self, told: object) -> Tree:
        """Read the tree in a runner's answer without trusting anything in it.

        Raises:
            RunnerFailed: it is no tree, or too large.
        """
        try:
            # Half of the memory: every tensor may be read, compared in a wider type, and kept for a while.
            return Tree.from_json(told, limit_bytes=self._shared.memory_bytes // 2)
        except TooLarge as error:
            raise RunnerFailed("out_of_memory", f"the {self.role} runner made {error}") from None
        except TreeError as error:
            raise RunnerFailed("protocol", f"forged or broken answer of the {self.role} runner: {error}") from None
