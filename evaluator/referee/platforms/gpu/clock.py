"""The clock of a call on a GPU.

A launched kernel goes on while the process that launched it is stopped. So the clock does not end when the runner has
answered and stands still, but when the referee's own copy of the outputs is complete. What the runner writes after that
is not in the copy, and what it has not written by then lies there as poison: wrong, not fast. The copy comes after the
runner's answer on a stream of the referee's, which waits for nothing that the runner could hold back. It is asked for
before the runner is stopped, for stopping takes time in which work could be hidden: as much is copied as the last call
needed, and again if this one needs more. Where outputs lie on the host, the clock ends when the runner stands still.

The clock holds the runner's own copy of its outputs into the referee's memory, and the referee's copy of that, which is
the same for all variants.

A stopped process cannot launch, but what it has queued before may start by itself: a kernel that watches the memory of
inputs, or a stream that waits for a word there to change. So the device must be idle behind the runner's last turn
before the clock, and inputs are uncovered as late as possible: copied on the device out of memory of the referee's own,
when all that is looked at before the runner is continued has been seen. From then on the device's time counts, less
what uncovering and flushing take where nobody disturbs them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ...errors import Finding, RunnerFailed
from ...isolation import procfs
from ...isolation.calls import Call, CallRequest
from ...isolation.handle import RunnerHandle
from ...protocol import call_messages
from ...protocol.call_messages import Go
from ...protocol.device_memory import on_device, output_offsets
from ...protocol.tensors import TensorRow, Tree
from .driver import Driver
from .memory import DeviceInputBuffer

AGREE_S = 0.0001
"""By so much the host's clock and the device's may differ in one call: what a mark and a wait take."""

AGREE_SHARE = 0.01
"""And by this share of the call."""

DISAGREEMENTS = 3
"""So many calls in which they differ by more may come of a host that was busy for a moment."""

DISAGREEING = 0.02
"""And so may this share of the calls."""

IDLE_S = 0.0005
"""Filling a few bytes takes longer than this only if the device does something else."""

IDLE_TRIES = 20
"""So many times it is looked whether the device is idle, a millisecond apart."""

UNCOVER_SLACK_S = 0.00002
"""By so much longer than ever before may the device take to uncover inputs without being charged."""

UNCOVER_SLACK_SHARE = 0.02
"""Or by this share of the least: what its clock's rate differs by."""

_PROBES = 3
_APART_S = 0.0002  # between probes, so that each waits anew for the turn of another context


@dataclass
class Agreement:
    """Holds the host's clock and the device's against each other, for the calls of an evaluation."""

    calls: int = 0
    worst_s: float = 0.0
    disagreed: int = 0

    def add(self, host_s: float, device_s: float) -> None:
        """Note what both say of one call.

        Raises:
            Finding: they have differed too often.
        """
        self.calls += 1
        off_s = abs(host_s - device_s)
        self.worst_s = max(self.worst_s, off_s)
        if off_s > AGREE_S + AGREE_SHARE * max(host_s, device_s):
            self.disagreed += 1
            if self.disagreed > max(DISAGREEMENTS, DISAGREEING * self.calls):
                raise Finding(
                    "sandbox_error",
                    f"in {self.disagreed} of {self.calls} calls the host's clock and the GPU's differed by more than "
                    f"they may; in the last one {host_s * 1e3:.3f} and {device_s * 1e3:.3f} ms",
                    "clocks_disagree",
                )


@dataclass
class Flush:
    """Fills the device's caches with other data, and has no line of them persist."""

    driver: Driver
    address: int
    nbytes: int

    def __call__(self) -> None:
        """Ask for it, in the order of the referee's stream."""
        self.driver.forget_persistence()
        self.driver.fill(self.address, 0, self.nbytes)


@dataclass
class Uncovering:
    """What the device takes to uncover inputs and flush caches if nobody disturbs it: the least seen, by their sizes.

    No runner can make the least smaller than the device allows, and work that starts meanwhile makes others larger. It
    is the device's own time, for the host's differs by what waking up takes.

    Attributes:
        least_s: by the sizes of the inputs in bytes.
        calls: how many there were.
        charged: to how many of them something was charged.
    """

    least_s: dict[tuple[int, ...], float] = field(default_factory=dict)
    calls: int = 0
    charged: int = 0

    def excess_s(self, sizes: tuple[int, ...], seconds: float) -> float:
        """What is charged to the call that follows."""
        least_s = self.least_s[sizes] = min(seconds, self.least_s.get(sizes, seconds))
        excess_s = seconds - least_s
        is_charged = excess_s > max(UNCOVER_SLACK_S, UNCOVER_SLACK_SHARE * least_s)
        self.calls, self.charged = self.calls + 1, self.charged + is_charged
        return excess_s if is_charged else 0.0


@dataclass
class Clock:
    """Times calls on one GPU.

    Attributes:
        driver: the GPU.
        flush: empties caches of what the call is going to read.
        agreement: of both clocks.
        uncovering: of inputs.
        output_bytes: the room for outputs that calls of this evaluation have needed.
    """

    driver: Driver
    flush: Flush
    agreement: Agreement = field(default_factory=Agreement)
    uncovering: Uncovering = field(default_factory=Uncovering)
    output_bytes: int = 0

    def call(self, handle: RunnerHandle, request: CallRequest, *, see_idle: Callable[[], None] | None) -> Call:
        """One call: outputs are poisoned, inputs uncovered and caches emptied while all runners are stopped.

        Args:
            handle: the runner.
            request: what it is called with.
            see_idle: checks that nothing else runs on the device; then both clocks must agree, too. None: any may run.

        Raises:
            RunnerFailed: the runner died, failed, lied about the protocol or took too long.
            Finding: the clocks do not agree, or what `see_idle` raises.
        """
        buffer = buffer_of(handle)
        if request.quiet is not None:
            request.quiet()
        assert handle.input_buffer is not None
        placed = handle.input_buffer.place(request.tree)
        told = placed.to_json()
        spec, later = call_messages.split(told["spec"])
        _, getting_ready = handle.exchange({"op": "call", "tensors": told["tensors"], "spec": spec}, request.timeout_s)
        threads = procfs.count_stopped_threads(handle.stopped)
        buffer.stage(placed, request.contents)
        buffer.outputs.poison()
        used_ns = procfs.cpu_time_ns(handle.pid)
        go = Go(request.seed, request.keep, later, tuple(request.state)).pack()
        left_s = max(0.001, request.timeout_s - getting_ready.seconds)
        self.driver.wait()
        if see_idle is not None:
            see_idle()
        visible, uncovered, first, second, marked, taken = 0, 0, 0, 0, 0.0, 0.0

        def uncover() -> None:
            nonlocal visible, uncovered, first, marked
            visible = self.driver.mark()
            buffer.uncover(placed, request.contents)
            self.flush()
            if request.before is not None:
                request.before()
            uncovered, first = self.driver.mark(), self.driver.mark()
            self.driver.wait()
            marked = time.perf_counter()

        def take() -> None:
            nonlocal second, taken
            buffer.outputs.take_ahead()
            second = self.driver.mark()
            self.driver.wait()
            taken = time.perf_counter()

        reply, turn = handle.exchange(go, left_s, request.meanwhile, before=uncover, answered=take)
        stopping_s = turn.began + turn.seconds - taken
        buffer.opened_at = _address(reply.get("inputs_at"))
        outputs = handle.tree_of(reply.get("tree"))
        after = handle.tree_of(reply.get("state")) if request.state else None
        rows = device_rows(outputs, after)
        self._make_room(handle, buffer, rows, left_s)
        if buffer.outputs.take(rows):
            too_early, unused, second = second, self.driver.mark(), self.driver.mark()
            self.driver.wait()
            taken = time.perf_counter()
            self.driver.between_s(too_early, unused)  # gives them back
        ended = taken
        if any(not on_device(row) for tree in (outputs, after) if tree is not None for row in tree.tensors):
            # What lies on the host is read of a process that stands still.
            ended = max(ended, turn.began + turn.seconds)
        device_s, uncovering_s = self.driver.between_s(first, second), self.driver.between_s(visible, uncovered)
        excess_s = self.uncovering.excess_s(tuple(content.numel() for content in request.contents), uncovering_s)
        if see_idle is not None:
            self.agreement.add(taken - marked, device_s)
        used_ns = procfs.cpu_time_ns(handle.pid) - used_ns
        ready_s = getting_ready.answered_s + max(0.0, getting_ready.seconds - getting_ready.answered_s - stopping_s)
        return Call(outputs, ended - turn.began + excess_s, placed, ready_s, threads, used_ns / 1e9, after)

    def handover_s(self, handle: RunnerHandle) -> float:
        """A question that has the device fill a few bytes, and a snapshot of nothing.

        The device changes from the context of one process to that of the other, as in a call.

        Raises:
            RunnerFailed: the runner died, failed or sent a forged answer.
        """
        first, second, ended = 0, 0, 0.0

        def take() -> None:
            nonlocal first, second, ended
            first, second = self.driver.mark(), self.driver.mark()
            self.driver.wait()
            ended = time.perf_counter()

        _, turn = handle.exchange({"op": "touch"}, 60, answered=take)
        self.driver.between_s(first, second)  # gives them back
        return ended - turn.began

    def _make_room(
        self, handle: RunnerHandle, buffer: DeviceInputBuffer, rows: list[TensorRow], timeout_s: float
    ) -> None:
        """Have the outputs put into larger memory, where they did not fit. It is on the clock.

        Raises:
            RunnerFailed: the runner died, failed, or took too long; or the device has not so much memory.
        """
        needed = needed_bytes(rows)
        is_other = buffer.outputs.room(needed)
        self.output_bytes = max(self.output_bytes, needed)
        if is_other:
            hand_over(handle, buffer, rows, timeout_s, is_other=True)


def buffer_of(handle: RunnerHandle) -> DeviceInputBuffer:
    """The memory that a runner shares with the referee, whose inner one a misaligned buffer wraps."""
    buffer = getattr(handle.input_buffer, "inner", handle.input_buffer)
    assert isinstance(buffer, DeviceInputBuffer)
    return buffer


def device_rows(outputs: Tree, state: Tree | None) -> list[TensorRow]:
    """The tensors of an answer that lie on the device, in the order in which the runner has put them."""
    return [row for tree in (outputs, state) if tree is not None for row in tree.tensors if on_device(row)]


def needed_bytes(rows: list[TensorRow]) -> int:
    """What these tensors take in the memory for outputs."""
    return output_offsets(rows)[1]


def hand_over(
    handle: RunnerHandle, buffer: DeviceInputBuffer, rows: list[TensorRow], timeout_s: float, *, is_other: bool
) -> None:
    """Have a runner copy what lies at these places into the memory for outputs. That it does is a claim.

    Args:
        handle: the runner.
        buffer: what it shares with the referee.
        rows: the places.
        timeout_s: the most that it may take.
        is_other: whether the memory is another than the runner has open.

    Raises:
        RunnerFailed: the runner died, failed or took too long.
    """
    message = {"op": "hand_over", "rows": [row.to_json() for row in rows]}
    handle.share(message, buffer.outputs.told() if is_other else [], timeout_s=timeout_s)


def is_idle(driver: Driver, address: int) -> bool:
    """Whether the device does nothing: whatever fills a few bytes then need not wait for others.

    Contexts of several processes take turns on a GPU, so work of another one keeps ours waiting. One short wait shows
    nothing, for it may fall into a turn of ours: so several in a row must be short, with pauses in which ours ends.
    """
    for number in range(IDLE_TRIES):
        if number:
            time.sleep(0.001)
        if all(_probe_s(driver, address) <= IDLE_S for _ in range(_PROBES)):
            return True
    return False


def _probe_s(driver: Driver, address: int) -> float:
    time.sleep(_APART_S)
    start = time.perf_counter()
    driver.fill(address, 0, 16)
    driver.wait()
    return time.perf_counter() - start


def _address(told: object) -> int:
    """An address that a runner has told.

    Raises:
        RunnerFailed: it is none.
    """
    if isinstance(told, bool) or not isinstance(told, int) or not 0 <= told < 1 << 63:
        raise RunnerFailed("protocol", "forged or broken answer: no address of the inputs")
    return told
