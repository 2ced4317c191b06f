"""What the referee has its runners do: commands, calls under the clock, reading what lies in their memory."""

import socket
import sys
from collections.abc import Callable, Sequence

import torch

from ..errors import RunnerFailed, names_role, of_refusal
from ..protocol import framing
from ..protocol.tensors import DTYPES, TensorRow, TooLarge, Tree, TreeError
from . import procfs
from .calls import Call
from .input_buffer import Inbox
from .process import House, Leash, Turn


class Handle(Leash):
    """One runner. Stopped whenever it is neither answering nor doing what was begun beside other work."""

    def __init__(self, house: House, role: str, uid: int) -> None:
        super().__init__(house, role, uid)
        self.inbox: Inbox | None = None

    def close(self) -> bool:
        """Kill the runner with everything it started; whether all of it went."""
        gone = super().close()
        if self.inbox is not None:
            self.inbox.close()
        return gone

    @names_role
    def ask(self, message: framing.Message, *, timeout_s: float) -> framing.Message:
        """Have the runner do something untimed, and leave it stopped.

        Raises:
            RunnerFailed: it died, failed, lied about the protocol or took too long.
        """
        return self._exchange(message, timeout_s)[0]

    @names_role
    def begin(self, message: framing.Message) -> None:
        """`ask` for something to be done beside other work, between `resume` and `pause`, until `finish`.

        Raises:
            RunnerFailed: it died.
        """
        self._send(message, 60)
        self._house.audit.allow(self._stopped)

    @names_role
    def finish(self, *, timeout_s: float) -> framing.Message:
        """Wait for the answer to what was begun; the runner is left stopped.

        Raises:
            RunnerFailed: it died, failed, lied about the protocol or took too long.
        """
        self.pause()
        reply, _ = self._answer(timeout_s)
        self._house.audit.allow([])
        return reply

    @names_role
    def handover_s(self) -> float:
        """The time of a question that asks for nothing; a timed call holds more than that besides the model's.

        Raises:
            RunnerFailed: it died, failed or lied.
        """
        return self._exchange({"op": "release"}, timeout_s=60)[1].seconds

    @names_role
    def attach(self, inbox: Inbox) -> None:
        """Share an inbox with the runner, in place of the one before."""
        if self.inbox is not None:
            self.inbox.close()
        self.inbox = inbox
        try:
            framing.send(self._sock, {"op": "attach", "size": inbox.size})
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
        state: Sequence[str] = (),
        quiet: Callable[[], None] | None = None,
        before: Callable[[], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Call:
        """Put inputs where the stopped runner will see them, let it run the model, stop it again.

        The runner makes tensors of the inputs' places before they lie there, so that what it does then is the model's
        call and little more. The clock runs from before it is let go for that until its answer is here and it has been
        seen to stop (docs/timing.md). `state`: what of the model's is told with the answer. `quiet` stops what may run
        beside the referee, before the runner is let go for whatever reason; `before` is called when the inputs lie
        there, `meanwhile` once the runner runs.

        Raises:
            RunnerFailed: it died, failed or took too long.
        """
        assert self.inbox is not None
        if quiet is not None:
            quiet()
        placed = self.inbox.place(tree)
        told = placed.to_json()
        _, getting_ready = self._exchange({"op": "call", "tensors": told["tensors"]}, timeout_s)
        threads = procfs.count_stopped_threads(self._stopped)
        self.inbox.fill(placed, contents)
        if before is not None:
            before()
        used_ns = procfs.cpu_time_ns(self.pid)
        message = {"spec": told["spec"], "seed": seed, "keep": keep, "state": list(state)}
        reply, turn = self._exchange(message, max(0.001, timeout_s - getting_ready.seconds), meanwhile)
        used_ns = procfs.cpu_time_ns(self.pid) - used_ns
        # Being slow to stop is excused as far as it was paid for in this very call.
        stopping_s = getting_ready.seconds - getting_ready.answered_s - (turn.seconds - turn.answered_s)
        ready_s = getting_ready.answered_s + max(0.0, stopping_s)
        after = self._tree(reply.get("state")) if state else None
        return Call(self._tree(reply.get("tree")), turn.seconds, placed, ready_s, threads, used_ns / 1e9, after)

    def give(
        self, message: framing.Message, tree: Tree, contents: list[torch.Tensor], *, timeout_s: float
    ) -> framing.Message:
        """`ask` with a tree put into the inbox."""
        assert self.inbox is not None
        placed = self.inbox.put(tree, contents)
        return self.ask({**message, "tree": placed.to_json()}, timeout_s=timeout_s)

    def reveal(self, message: framing.Message, *, timeout_s: float) -> Tree:
        """`ask` for a value; the tree of where it lies in the runner's memory."""
        return self._tree(self.ask(message, timeout_s=timeout_s).get("tree"))

    def reveal_each(self, message: framing.Message, *, timeout_s: float) -> list[Tree]:
        """`ask` for several values; the trees of where they lie in the runner's memory."""
        return self.trees(self.ask(message, timeout_s=timeout_s))

    def trees(self, reply: framing.Message) -> list[Tree]:
        """The trees of an answer that holds several values."""
        trees = reply.get("trees")
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
            procfs.read_memory(self.pid, row.place, data)
        except procfs.ForeignMemoryError as error:
            raise RunnerFailed("unreadable", f"output memory cannot be read: {error}") from None
        return data

    @names_role
    def flip(self, row: TensorRow, elements: Sequence[int]) -> None:
        """Give elements of a tensor's span in the stopped runner other values; done twice, they are as before.

        Integers and booleans change by one, so that one of them that is an index stays near where it was.

        Raises:
            RunnerFailed: what lies there cannot be written to.
        """
        size = DTYPES[row.dtype].itemsize
        rounded = DTYPES[row.dtype].is_floating_point or DTYPES[row.dtype].is_complex
        bits = b"\x55" * size if rounded else (1).to_bytes(size, sys.byteorder)
        try:
            procfs.flip_memory(self.pid, [row.place + index * size for index in elements], bits)
        except procfs.ForeignMemoryError as error:
            raise RunnerFailed("unreadable", f"output memory cannot be written to: {error}") from None

    def _exchange(
        self, message: framing.Message, timeout_s: float, meanwhile: Callable[[], None] | None = None
    ) -> tuple[framing.Message, Turn]:
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

    def _tree(self, told: object) -> Tree:
        try:
            # Every tensor may be read, compared in a wider type, and kept for a while.
            return Tree.from_json(told, limit_bytes=self._house.memory_bytes // 2)
        except TooLarge as error:
            raise RunnerFailed("out_of_memory", f"the {self.role} runner made {error}") from None
        except TreeError as error:
            raise RunnerFailed("protocol", f"forged or broken answer of the {self.role} runner: {error}") from None
