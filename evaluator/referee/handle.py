"""The referee's hold on its runners: spawn, ask, time, freeze, read, kill."""

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from . import homes, processes, wire
from .audit import Audit
from .calls import Call
from .failures import RunnerFailed, names_role, of_end, of_refusal
from .inbox import Inbox
from .nursery import LOG_BYTES
from .tree import TensorRow, TooLarge, Tree, TreeError

_LOG_TAIL_BYTES = 4000
_NO_WRAP_S = processes.no_wrap_s()


@dataclass(frozen=True)
class House:
    """What all runners of one evaluation share."""

    nursery: socket.socket
    scratch: str
    memory_bytes: int
    separate_uids: bool
    audit: Audit


class Handle:
    """One runner. Stopped whenever it is not answering."""

    @names_role
    def __init__(self, house: House, role: str, uid: int) -> None:
        self.role = role
        self._house = house
        self.uid = uid if house.separate_uids else None
        self._stopped: list[int] = []
        self._newest, self._frozen_at = -1, 0.0  # the newest process when all of them were last seen stopped, and when
        self.inbox: Inbox | None = None
        self._layouts: list[dict[str, object]] = []  # those that the runner has read already
        self._sock, theirs = socket.socketpair()
        self._log = os.memfd_create(f"log-{role}", os.MFD_CLOEXEC)
        self.home, self.built = homes.choose(house.scratch, role)
        wire.send(
            house.nursery,
            {
                "op": "spawn",
                "uid": self.uid,
                "home": self.home,
                "built": self.built,
                "file_bytes": max(LOG_BYTES, 512 * 1024 * 1024),
                # Address space is mostly reserved, not used: leave room for thread stacks, arenas and mapped files.
                "address_bytes": house.memory_bytes * 2 + 16 * 1024**3,
            },
        )
        socket.send_fds(house.nursery, [b"x"], [theirs.fileno(), self._log])
        theirs.close()
        spawned = wire.receive(house.nursery)
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
            return processes.pids_of_uid(self.uid)
        return processes.descendants([self.pid])

    @names_role
    def ask(self, message: wire.Message, *, timeout_s: float) -> wire.Message:
        """Have the runner do something untimed, and leave it stopped.

        Raises:
            RunnerFailed: it died, failed, lied about the protocol or took too long.
        """
        reply, _ = self._exchange(message, timeout_s)
        return reply

    @names_role
    def handover_s(self) -> float:
        """The time of a question that asks for nothing: what every timed call holds besides the call.

        Raises:
            RunnerFailed: it died, failed or lied.
        """
        return self._exchange({"op": "release"}, timeout_s=60)[1]

    @names_role
    def attach(self, inbox: Inbox) -> None:
        """Share an inbox with the runner, in place of the one before."""
        if self.inbox is not None:
            self.inbox.close()
        self.inbox = inbox
        self._layouts.clear()
        try:
            wire.send(self._sock, {"op": "attach", "size": inbox.size})
            socket.send_fds(self._sock, [b"x"], [inbox.fd])
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
        before: Callable[[], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Call:
        """Put inputs where the stopped runner will see them, let it run the model, stop it again.

        The clock runs from before the runner is let go until its answer is here and it has been seen to stop; see
        DESIGN §4. `before` is called when the inputs lie there, `meanwhile` once the runner runs.

        Raises:
            RunnerFailed: it died, failed or took too long.
        """
        assert self.inbox is not None
        # The runner learns where inputs will lie before they lie there.
        placed = self.inbox.place(tree)
        message = {"op": "call", "layout": self._layout(placed), "seed": seed, "keep": keep}
        self.inbox.fill(placed, contents)
        if before is not None:
            before()
        reply, seconds = self._exchange(message, timeout_s, meanwhile)
        return Call(self._tree(reply.get("tree")), seconds, placed)

    def give(
        self, message: wire.Message, tree: Tree, contents: list[torch.Tensor], *, timeout_s: float
    ) -> wire.Message:
        """`ask` with a tree put into the inbox."""
        assert self.inbox is not None
        placed = self.inbox.put(tree, contents)
        return self.ask({**message, "tree": placed.to_json()}, timeout_s=timeout_s)

    def reveal(self, message: wire.Message, *, timeout_s: float) -> Tree:
        """`ask` for a value; the tree of where it lies in the runner's memory."""
        return self._tree(self.ask(message, timeout_s=timeout_s).get("tree"))

    def reveal_each(self, message: wire.Message, *, timeout_s: float) -> list[Tree]:
        """`ask` for several values; the trees of where they lie in the runner's memory."""
        trees = self.ask(message, timeout_s=timeout_s).get("trees")
        if not isinstance(trees, list):
            raise RunnerFailed("protocol", f"forged or broken answer of the {self.role} runner: no list of trees")
        return [self._tree(tree) for tree in trees]

    @names_role
    def read(self, row: TensorRow) -> torch.Tensor:
        """The bytes of a tensor (its whole span) out of the stopped runner's memory.

        Raises:
            RunnerFailed: nothing readable lies there.
        """
        data = torch.empty(row.span_bytes, dtype=torch.uint8)
        try:
            processes.read_memory(self.pid, row.place, data)
        except processes.MemoryReadError as error:
            raise RunnerFailed("unreadable", f"output memory cannot be read: {error}") from None
        return data

    def log_tail(self) -> str:
        """The end of what the runner printed."""
        size = os.fstat(self._log).st_size
        start = max(0, size - _LOG_TAIL_BYTES)
        return os.pread(self._log, _LOG_TAIL_BYTES, start).decode("utf-8", "replace")

    def close(self) -> bool:
        """Kill the runner with everything it started; whether all of it went."""
        gone = processes.kill_all(self.members)
        if self.uid is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self._reap()
        self._sock.close()
        os.close(self._pidfd)
        os.close(self._log)
        if self.inbox is not None:
            self.inbox.close()
        return gone

    def _layout(self, placed: Tree) -> int:
        form = placed.to_json()
        if form not in self._layouts:
            self.ask({"op": "layout", "tree": form}, timeout_s=60)
            self._layouts.append(form)
        return self._layouts.index(form)

    def _exchange(
        self, message: wire.Message, timeout_s: float, meanwhile: Callable[[], None] | None = None
    ) -> tuple[wire.Message, float]:
        self._sock.settimeout(timeout_s)
        try:
            # It is stopped and cannot read this yet: one wake-up less than sending to a running process.
            wire.send(self._sock, message)
        except OSError:
            raise self._death() from None
        body, seconds = self._turn(timeout_s, meanwhile)
        try:
            reply = wire.parse(body)
        except wire.WireError as error:
            raise RunnerFailed("protocol", f"forged or broken answer: {error}", self.log_tail()) from None
        if reply.get("ok") is not True:
            raise of_refusal(reply, self.log_tail())
        return reply, seconds

    def _turn(self, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> tuple[bytes, float]:
        """Let the runner go until its whole answer is here and it has been seen to stop; the answer and that time."""
        audit, whole_sandbox = self._house.audit, self.role == "candidate"
        known = self._stopped
        deadline = time.monotonic() + timeout_s
        audit.let_go(known, whole_sandbox=whole_sandbox)
        start = time.perf_counter()
        processes.thaw(known)
        if meanwhile is not None:
            meanwhile()
        body = self._await(timeout_s, deadline)
        processes.stop(known)
        # Neither part of an answer stops the clock nor an answer whose sender goes on: until it has been seen to stop.
        stopped = processes.wait_stopped(known)
        seconds = time.perf_counter() - start
        newest = processes.newest_pid()
        # Where nobody was forked since all were stopped there is nobody to look for: half of what a short call costs.
        # (A runner that has just been spawned may not have been found yet.)
        nobody_new = newest == self._newest and start + seconds - self._frozen_at < _NO_WRAP_S and self.pid in known
        if not (nobody_new and stopped):
            self._freeze()
        if not stopped or set(self._stopped) - set(known) or processes.newest_pid() != newest:
            # Someone who was not among those told to stop may have gone on working until now, or someone who was.
            self._freeze()
            seconds = time.perf_counter() - start
        processes.wait_off_processor(known)
        self._newest, self._frozen_at = newest, time.perf_counter()
        audit.stopped()
        return body, seconds

    def _await(self, timeout_s: float, deadline: float) -> bytes:
        ready = self._poll.poll(timeout_s * 1000)
        if not ready:
            raise RunnerFailed("timed_out", f"no answer within {timeout_s:g} s", self.log_tail())
        if all(fd != self._sock.fileno() for fd, _ in ready):
            raise self._death()
        try:
            return wire.receive_bytes(self._sock, deadline=deadline)
        except wire.WireError as error:
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
            wire.send(self._house.nursery, {"op": "reap", "pid": self.pid})
            status = wire.receive(self._house.nursery)["status"]
            if status is not None or time.monotonic() > deadline:
                return None if status is None else int(status)
            time.sleep(0.01)

    def _freeze(self) -> None:
        try:
            self._stopped = processes.freeze(self.members)
        except processes.FreezeError as error:
            raise RunnerFailed("protocol", str(error)) from None

    def _tree(self, told: object) -> Tree:
        try:
            # Every tensor may be read, compared in a wider type, and kept for a while.
            return Tree.from_json(told, limit_bytes=self._house.memory_bytes // 2)
        except TooLarge as error:
            raise RunnerFailed("out_of_memory", f"the {self.role} runner made {error}") from None
        except TreeError as error:
            raise RunnerFailed("protocol", f"forged or broken answer of the {self.role} runner: {error}") from None
