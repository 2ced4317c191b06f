"""A call on a GPU, from the referee's message to the judged bytes: the real runner loop, on the host's memory.

What runs here is everything but the driver and torch's CUDA: slots, poison, the hand-over of outputs, the snapshot, and
which bytes are read afterwards.
"""

import ctypes
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from evaluator.referee.correctness.neighbours import Misaligned
from evaluator.referee.errors import Finding, RunnerFailed
from evaluator.referee.isolation.calls import Call, CallRequest, InputSet, tensor, with_values
from evaluator.referee.isolation.handle import RunnerHandle, TimedReply
from evaluator.referee.platforms.gpu import clock as clock_module
from evaluator.referee.platforms.gpu import platform as platform_module
from evaluator.referee.platforms.gpu.clock import (
    UNCOVER_SLACK_S,
    UNCOVER_SLACK_SHARE,
    Agreement,
    Clock,
    Flush,
    Uncovering,
)
from evaluator.referee.platforms.gpu.driver import GRANULE
from evaluator.referee.platforms.gpu.memory import POISON, DeviceInputBuffer
from evaluator.referee.platforms.gpu.platform import GpuPlatform
from evaluator.referee.platforms.gpu.watch import GpuMeter
from evaluator.referee.protocol import framing
from evaluator.referee.protocol.tensors import TensorRow, Tree, TreeError, bytes_needed
from evaluator.referee.runner.main import Runner
from evaluator.referee.runner.platforms.on_gpu import calls as runner_calls
from evaluator.referee.runner.platforms.on_gpu.calls import DeviceCalls
from evaluator.referee.runner.platforms.on_gpu.platform import OnGpuRunner
from tests.evaluator.referee.platforms.gpu.host_driver import HostDriver, HostMemory


class OnHostMemory(OnGpuRunner):
    """The runner's platform, with memory that stands for a GPU's."""

    def __init__(self, memory: HostMemory) -> None:
        self.memory = memory

    def commands(self, runner: Runner) -> Any:
        return DeviceCalls(runner, self.memory).commands()


class Handle:
    """A runner that is a thread of this process. What the referee asks of it goes over a socket, as everywhere."""

    role = "candidate"
    pid = 0

    def __init__(self, runner: Runner, ours: socket.socket) -> None:
        self.runner, self._sock = runner, ours
        self.input_buffer: DeviceInputBuffer | None = None
        self.stopped: list[int] = []
        self.asked: list[str] = []

    def exchange(
        self, message: Any, timeout_s: float, meanwhile: Any = None, *, before: Any = None, answered: Any = None
    ) -> tuple[Any, TimedReply]:
        if before is not None:
            before()
        began = time.perf_counter()
        body = message if isinstance(message, bytes) else framing.encoded(message)
        self.asked.append("" if isinstance(message, bytes) else message["op"])
        framing.send_body(self._sock, body)
        reply = framing.receive(self._sock)
        if answered is not None:
            answered()
        took_s = time.perf_counter() - began
        if reply.get("ok") is not True:
            raise RunnerFailed("error", str(reply.get("error")))
        return reply, TimedReply(b"", took_s, took_s, began)

    def ask(self, message: Any, *, timeout_s: float) -> Any:
        return self.exchange(message, timeout_s)[0]

    def attach(self, buffer: DeviceInputBuffer) -> None:
        self.input_buffer = buffer
        self.share({"op": "attach"}, buffer.told, timeout_s=60)

    def share(self, message: Any, told: list[tuple[int, int]], *, timeout_s: float) -> None:
        self.asked.append(message["op"])
        framing.send(self._sock, {**message, "sizes": [size for _, size in told]})
        if told:
            socket.send_fds(self._sock, [b"x"], [fd for fd, _ in told])
        assert framing.receive(self._sock)["ok"]

    def tree_of(self, told: Any) -> Tree:
        try:
            return Tree.from_json(told)
        except TreeError as error:
            raise RunnerFailed("protocol", str(error)) from None


class Bench:
    """A referee's platform and one runner on a device that is host memory."""

    def __init__(self, sock: socket.socket, theirs: socket.socket, built: Path) -> None:
        self.driver = HostDriver()
        self.memory = HostMemory(self.driver)
        self.runner = Runner(theirs, built, OnHostMemory(self.memory))
        self.handle = Handle(self.runner, sock)
        self.platform = GpuPlatform("cuda", "GPU-a", 0, driver=self.driver)
        flushed = self.driver.allocate(2 * self.driver.l2_bytes)
        self.clock = self.platform._clock = Clock(self.driver, Flush(self.driver, flushed.address, flushed.nbytes))

    @property
    def as_handle(self) -> RunnerHandle:
        return cast("RunnerHandle", self.handle)

    @property
    def buffer(self) -> DeviceInputBuffer:
        assert self.handle.input_buffer is not None
        return self.handle.input_buffer

    def attach(self, inputs: InputSet, slots: int = 2) -> None:
        self.handle.attach(cast("DeviceInputBuffer", self.platform.input_buffer(bytes_needed(inputs.tree), slots)))

    def call(self, inputs: InputSet, **more: Any) -> Call:
        request = CallRequest(inputs.tree, inputs.contents, inputs.seed, 10.0, **more)
        return self.platform.call(self.as_handle, request)

    def value(self, row: TensorRow) -> torch.Tensor:
        return tensor(row, self.platform.read(self.as_handle, row))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bench]:
    for module in (clock_module, platform_module, runner_calls):
        monkeypatch.setattr(module, "on_device", lambda row: True)  # to torch it is the host's memory
    monkeypatch.setattr(clock_module.procfs, "cpu_time_ns", lambda pid: 0)
    monkeypatch.setattr(clock_module.procfs, "count_stopped_threads", lambda pids: 1)
    ours, theirs = socket.socketpair()
    made = Bench(ours, theirs, tmp_path)
    serving = threading.Thread(target=made.runner.serve, daemon=True)
    serving.start()
    yield made
    ours.close()
    serving.join(10)
    assert not serving.is_alive()
    theirs.close()


def inputs_of(*values: torch.Tensor, seed: int = 5) -> InputSet:
    leaves = {"list": [{"tensor": number} for number in range(len(values))]}
    rows = tuple(TensorRow(0, "float32", tuple(value.shape), tuple(value.stride())) for value in values)
    return with_values(InputSet(Tree(leaves, rows), [], seed), values)


def model(bench: Bench, forward: Callable[..., Any]) -> None:
    bench.runner.model = bench.runner.called = forward


X = torch.arange(1000, dtype=torch.float32).reshape(20, 50)


def test_what_is_judged_is_what_the_model_made_of_the_referees_inputs(bench: Bench) -> None:
    model(bench, lambda x, y: (x + y, {"twice": 2 * x}))
    inputs = inputs_of(X, X.t().contiguous().t())
    bench.attach(inputs)
    for _ in range(3):
        call = bench.call(inputs)
        plus, twice = call.outputs.tensors
        assert torch.equal(bench.value(plus), X + X)
        assert torch.equal(bench.value(twice), 2 * X)
        assert call.seconds > 0
    assert bench.handle.asked.count("hand_over") == 1  # the first time there was no room yet
    assert bench.memory.waits == 4


def test_a_baseline_is_called_as_it_was_wrapped(bench: Bench) -> None:
    model(bench, lambda x: x.clone())
    bench.runner.called = lambda x: 2 * x
    bench.attach(inputs_of(X))
    [row] = bench.call(inputs_of(X)).outputs.tensors
    assert torch.equal(bench.value(row), 2 * X)


def test_outputs_at_one_place_are_read_each_whole(bench: Bench) -> None:
    model(bench, lambda x: [y := 2 * x, y[:1], y, y[1:]])
    bench.attach(inputs_of(X))
    rows = bench.call(inputs_of(X)).outputs.tensors
    asked = len(bench.handle.asked)
    for row, expected in zip(rows, [2 * X, 2 * X[:1], 2 * X, 2 * X[1:]], strict=True):
        assert torch.equal(bench.value(row), expected)
    assert len(bench.handle.asked) == asked  # all of it lay in the snapshot


def test_outputs_with_gaps_are_read_with_them(bench: Bench) -> None:
    model(bench, lambda x: x[:, ::2])
    bench.attach(inputs_of(X))
    [row] = bench.call(inputs_of(X)).outputs.tensors
    assert row.stride == (50, 2)
    assert torch.equal(bench.value(row), X[:, ::2])


def test_what_is_written_after_the_snapshot_is_wrong_and_not_fast(bench: Bench) -> None:
    late: list[torch.Tensor] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        late.append(torch.empty_like(x))
        return late[-1].fill_(0.0)

    model(bench, forward)
    bench.attach(inputs_of(X))
    [row] = bench.call(inputs_of(X)).outputs.tensors
    late[-1].copy_(2 * X)  # a kernel that was still running
    outputs = bench.buffer.outputs
    assert outputs.shared is not None
    ctypes.memmove(outputs.shared.address, late[-1].data_ptr(), X.nbytes)  # and straight into the referee's memory
    assert torch.equal(bench.value(row), torch.zeros_like(X))


def test_a_runner_that_leaves_the_copy_out_leaves_poison(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    model(bench, lambda x: 2 * x)
    bench.attach(inputs_of(X))
    bench.call(inputs_of(X))
    [row] = bench.call(inputs_of(X)).outputs.tensors
    assert torch.equal(bench.value(row), 2 * X)
    monkeypatch.setattr(DeviceCalls, "_put", lambda *_: None)
    [row] = bench.call(inputs_of(X)).outputs.tensors
    assert bool(bench.value(row).isnan().all())
    assert set(bench.platform.read(bench.as_handle, row).tolist()) == {POISON}


def test_earlier_outputs_are_asked_for_and_show_a_buffer_that_was_used_again(bench: Bench) -> None:
    held = torch.empty_like(X)
    fresh: list[torch.Tensor] = []

    def forward(x: torch.Tensor) -> Any:
        fresh.append(3 * x)
        return held.copy_(2 * x), fresh[-1]

    model(bench, forward)
    bench.attach(inputs_of(X))
    first = bench.call(inputs_of(X), keep=True).outputs.tensors
    before = [bench.value(row) for row in first]
    bench.call(inputs_of(X + 1), keep=True)
    again = [bench.value(row) for row in first]
    assert not torch.equal(again[0], before[0])
    assert torch.equal(again[1], before[1])
    assert bench.handle.asked.count("hand_over") == 2  # the reused one lay in the snapshot of the second call


@pytest.mark.parametrize("elements", [GRANULE // 4 - 1, GRANULE // 4, GRANULE // 4 + 1])
def test_what_is_asked_for_behind_a_call_fits_whatever_its_size(bench: Bench, elements: int) -> None:
    x = torch.arange(elements, dtype=torch.float32)
    model(bench, lambda x: x + 1)
    bench.attach(inputs_of(x))
    first = bench.call(inputs_of(x), keep=True).outputs.tensors
    bench.call(inputs_of(x), keep=True)
    bench.buffer.outputs.give_back()  # it is asked for anew, as the oracle's outputs are
    assert torch.equal(bench.value(first[0]), x + 1)


def test_what_lies_at_the_place_of_an_output_later_is_not_taken_for_it(bench: Bench) -> None:
    held = torch.empty_like(X)
    model(bench, lambda x: held.copy_(2 * x))
    inputs = inputs_of(X)
    bench.attach(inputs)
    [row] = bench.call(inputs).outputs.tensors
    assert torch.equal(bench.value(row), 2 * X)
    bench.buffer.put(inputs.tree, inputs.contents)  # of the oracle's run, say, whose outputs get the same memory
    held.copy_(3 * X)
    assert torch.equal(bench.value(row), 3 * X)


def test_inputs_are_uncovered_when_the_runner_stands_still_and_the_device_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(bench, lambda x: x.clone())
    bench.attach(inputs_of(X))
    timed(bench)
    row = TensorRow(0, "uint8", (X.nbytes,), (1,))
    found: list[set[int]] = []
    probe = clock_module._probe_s

    def looked(driver: Any, address: int) -> float:
        found.append(set(bench.buffer.copy(row).tolist()))
        assert bench.handle.asked[-1] == "call"  # behind the turn in which the runner gets ready
        return probe(driver, address)

    monkeypatch.setattr(clock_module, "_probe_s", looked)
    bench.call(inputs_of(X))
    assert found and all(each == {POISON} for each in found)


def test_work_that_starts_when_inputs_are_uncovered_is_on_the_clock(bench: Bench) -> None:
    model(bench, lambda x: x.clone())
    bench.attach(inputs_of(X))
    took_s = [bench.call(inputs_of(X)).seconds for _ in range(5)]
    flush = bench.clock.flush
    bench.clock.flush = cast("Any", lambda: (flush(), time.sleep(0.05)))  # in which work of the runner's runs
    assert bench.call(inputs_of(X)).seconds > 0.049 > 5 * min(took_s)


def test_what_uncovering_takes_at_least_is_not_charged() -> None:
    uncovering = Uncovering()
    assert uncovering.excess_s((4096,), 0.0005) == 0.0
    assert uncovering.excess_s((4096,), 0.0005 + 0.9 * UNCOVER_SLACK_S) == 0.0
    assert uncovering.excess_s((4096,), 0.0025) == pytest.approx(0.002)
    assert uncovering.excess_s((4096,), 0.0002) == 0.0
    assert uncovering.excess_s((4096,), 0.0005) == pytest.approx(0.0003)
    assert uncovering.excess_s((2048, 2048), 0.01) == 0.0  # other inputs
    assert (uncovering.calls, uncovering.charged) == (6, 2)
    assert uncovering.excess_s((1 << 30,), 0.01) == 0.0
    assert uncovering.excess_s((1 << 30,), 0.01 * (1 + 0.9 * UNCOVER_SLACK_SHARE)) == 0.0
    assert uncovering.excess_s((1 << 30,), 0.0105) == pytest.approx(0.0005)


def test_a_buffer_whose_tensors_are_misaligned_is_one_to_the_runner(bench: Bench) -> None:
    seen: list[int] = []
    model(bench, lambda x, y: (seen.append(x.data_ptr()), x + y)[1])
    inputs = inputs_of(X, X.t().contiguous().t())
    bench.attach(inputs)
    bench.call(inputs)
    bench.handle.input_buffer = cast("Any", Misaligned(bench.buffer, 4))
    [row] = bench.call(inputs).outputs.tensors
    assert [address % 16 for address in seen] == [seen[0] % 16, seen[0] % 16 + 4]
    bench.handle.input_buffer = cast("Any", cast("Any", bench.handle.input_buffer).inner)
    assert torch.equal(bench.value(row), X + X)


def test_state_is_in_the_same_snapshot(bench: Bench) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1  # type: ignore[has-type]
            return x.clone()

    bench.runner.model = bench.runner.called = Counting()
    bench.attach(inputs_of(X))
    bench.call(inputs_of(X))
    asked = len(bench.handle.asked)
    call = bench.call(inputs_of(X), state=["calls"])
    assert call.state is not None
    [row] = call.state.tensors
    assert bench.value(row).tolist() == [2.0, 2.0, 2.0]
    assert torch.equal(bench.value(call.outputs.tensors[0]), X)
    growing = bench.handle.asked[asked:].count("hand_over")
    assert growing <= 1


def test_inputs_lie_in_slots_that_are_taken_in_turn_and_a_change_of_them_is_seen(bench: Bench) -> None:
    seen: list[int] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.data_ptr())
        if len(seen) == 3:
            x[0, 0] = 77.0
        return x.clone()

    model(bench, forward)
    inputs = inputs_of(X)
    bench.attach(inputs, slots=2)
    calls = [bench.call(inputs) for _ in range(2)]
    [content] = inputs.contents
    for call in calls:
        assert bench.buffer.unchanged(call.placed.tensors[0], content)
    assert seen[0] != seen[1]
    changed = bench.call(inputs)
    assert seen[2] == seen[0]
    [row] = changed.placed.tensors
    assert not bench.buffer.unchanged(row, content)
    assert tensor(row, bench.buffer.copy(row))[0, 0] == 77.0
    assert bench.call(inputs) and torch.equal(tensor(row, bench.buffer.copy(row))[0, 1:], X[0, 1:])


def test_an_output_in_the_memory_of_the_inputs_is_told_apart(bench: Bench) -> None:
    model(bench, lambda x: (x, x.clone()))
    bench.attach(inputs_of(X))
    rows = bench.call(inputs_of(X)).outputs.tensors
    assert [bench.buffer.holds(row.at(row.place)) for row in cuda(rows)] == [True, False]


def cuda(rows: tuple[TensorRow, ...]) -> list[TensorRow]:
    return [TensorRow(row.place, row.dtype, row.shape, row.stride, "cuda:0") for row in rows]


def test_caches_are_emptied_behind_the_inputs_and_nothing_persists_in_them(bench: Bench) -> None:
    model(bench, lambda x: x.clone())
    bench.attach(inputs_of(X))
    bench.driver.log.clear()
    bench.call(inputs_of(X))
    flush = bench.clock.flush
    assert flush.nbytes >= 2 * bench.driver.l2_bytes
    assert ("fill", flush.address, flush.nbytes) in bench.driver.log
    assert bench.driver.persistence_forgotten == 1


def test_memory_and_its_descriptors_are_given_back_and_the_snapshot_is_never_exported(bench: Bench) -> None:
    model(bench, lambda x: x.clone())
    bench.attach(inputs_of(X))
    bench.call(inputs_of(X))
    fds = [fd for fd, _ in bench.buffer.told]
    assert len(fds) == 2
    bench.buffer.close()
    freed = {allocation.address for allocation in bench.driver.freed}
    assert len(freed) == 4 and len(freed - bench.driver.exported) == 2
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_new_memory_holds_nothing_of_what_another_runner_had_there(bench: Bench) -> None:
    bench.attach(inputs_of(X))
    row = TensorRow(0, "uint8", (4096,), (1,))
    assert set(bench.buffer.copy(row).tolist()) == {POISON}


def test_too_little_memory_on_the_device_is_the_runners_failure_and_told_as_such(bench: Bench) -> None:
    bench.driver.room = 4 * GRANULE
    with pytest.raises(RunnerFailed, match="device's memory") as failed:
        bench.platform.input_buffer(64 << 20, 2)
    assert failed.value.kind == "out_of_memory"


@pytest.mark.parametrize("granules", range(1, 9))
def test_a_buffer_that_could_not_be_made_holds_nothing(bench: Bench, granules: int) -> None:
    held, fds = set(bench.driver.memory), set(Path("/proc/self/fd").iterdir())
    bench.clock.output_bytes = 2 * GRANULE
    bench.driver.room = (len(held) + granules) * GRANULE
    if granules < 8:  # 2 of slots, 2 of what is staged, and 2 each of outputs and their snapshot
        with pytest.raises(RunnerFailed, match="device's memory"):
            bench.platform.input_buffer(2 * GRANULE, 1)
    else:
        bench.platform.input_buffer(2 * GRANULE, 1).close()
    assert set(bench.driver.memory) == held and set(Path("/proc/self/fd").iterdir()) == fds


def test_outputs_that_the_device_has_no_room_for_make_no_later_buffer_larger(bench: Bench) -> None:
    model(bench, lambda x: x.new_empty(64 << 18))
    inputs = inputs_of(X)
    bench.attach(inputs)
    bench.driver.room = 32 << 20
    with pytest.raises(RunnerFailed, match="device's memory"):
        bench.call(inputs)
    bench.buffer.close()
    bench.attach(inputs)
    assert bench.buffer.outputs.shared is None


def test_a_forged_address_of_the_inputs_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    model(bench, lambda x: x.clone())
    bench.attach(inputs_of(X))
    exchange = bench.handle.exchange
    monkeypatch.setattr(
        bench.handle,
        "exchange",
        lambda *given, **more: ({**exchange(*given, **more)[0], "inputs_at": -1}, exchange_time()),
    )
    with pytest.raises(RunnerFailed, match="no address"):
        bench.call(inputs_of(X))


def exchange_time() -> TimedReply:
    return TimedReply(b"", 0.0, 0.0, time.perf_counter())


def timed(bench: Bench, *, others: set[int] | None = None) -> None:
    """As while calls are timed: the device is the caller's alone."""
    meter = GpuMeter(cast("Any", SimpleNamespace(is_noisy=lambda: False)), lambda: None, (), lambda: [])
    meter.running, meter.others = True, others or set()
    bench.platform._meter, bench.platform._alone = meter, True


def test_work_that_is_left_running_is_found_before_the_next_call(bench: Bench) -> None:
    model(bench, lambda x: x.clone())
    bench.attach(inputs_of(X))
    timed(bench)
    bench.call(inputs_of(X))
    bench.driver.running.append(lambda: True)
    with pytest.raises(Finding) as found:
        bench.call(inputs_of(X))
    assert (found.value.verdict, found.value.code) == ("integrity", "work_left_running")


def test_one_short_wait_beside_work_that_goes_on_does_not_pass_for_an_idle_device(bench: Bench) -> None:
    model(bench, lambda x: x.clone())
    bench.attach(inputs_of(X))
    timed(bench)
    bench.call(inputs_of(X))
    probes = iter(range(1000))
    probe_s = [clock_module.IDLE_S / 10, clock_module.IDLE_S * 4]  # every second one falls into the referee's turn
    with pytest.MonkeyPatch.context() as patched, pytest.raises(Finding) as found:
        patched.setattr(clock_module, "_probe_s", lambda *_: probe_s[next(probes) % 2])
        bench.call(inputs_of(X))
    assert found.value.code == "work_left_running"


def test_work_that_ends_soon_is_waited_for(bench: Bench) -> None:
    model(bench, lambda x: x.clone())
    bench.attach(inputs_of(X))
    timed(bench)
    left = iter([True] * 5)
    bench.driver.running.append(lambda: next(left, False))
    bench.call(inputs_of(X))


def test_nobody_is_blamed_for_work_on_a_device_that_others_use(bench: Bench) -> None:
    model(bench, lambda x: x.clone())
    bench.attach(inputs_of(X))
    timed(bench, others={4242})
    bench.call(inputs_of(X))
    bench.clock.agreement = Agreement()
    bench.driver.running.append(lambda: True)
    bench.call(inputs_of(X))


def test_a_device_that_never_rests_before_a_candidate_has_run_is_no_fault_of_one(bench: Bench) -> None:
    model(bench, lambda x: x.clone())
    bench.handle.role = "eager"
    bench.attach(inputs_of(X))
    timed(bench)
    bench.driver.running.append(lambda: True)
    with pytest.raises(Finding) as found:
        bench.call(inputs_of(X))
    assert (found.value.verdict, found.value.code) == ("sandbox_error", "device_failed")


def test_clocks_that_do_not_agree_end_the_evaluation_without_a_verdict_on_the_candidate(bench: Bench) -> None:
    model(bench, lambda x: (time.sleep(0.003), x.clone())[1])
    bench.attach(inputs_of(X))
    timed(bench)
    bench.driver.drift = 0.5
    with pytest.raises(Finding) as found:
        for _ in range(10):
            bench.call(inputs_of(X))
    assert (found.value.verdict, found.value.code) == ("sandbox_error", "clocks_disagree")
    assert bench.clock.agreement.calls == 4
    facts = bench.platform.usage_facts(disturbances=0, calls=4, cpu_s=0.0, timed_s=1.0)
    assert facts["clocks_disagreed"] == 4 and facts["clocks_differ_us"] > 1000


def test_clocks_may_differ_by_what_a_mark_takes_and_by_a_hundredth() -> None:
    agreement = Agreement()
    for host_s, device_s in ((0.001, 0.00109), (0.1, 0.1009), (0.1, 0.0991), (2e-5, 0.0)):
        agreement.add(host_s, device_s)
    assert (agreement.calls, agreement.disagreed) == (4, 0)
    for _ in range(3):
        agreement.add(0.1, 0.09)
    with pytest.raises(Finding, match="in 4 of 8 calls"):
        agreement.add(0.1, 0.2)


def test_a_few_of_a_thousand_calls_in_which_the_host_was_busy_end_no_evaluation() -> None:
    agreement = Agreement()
    for _ in range(1000):
        agreement.add(0.001, 0.001)
    for _ in range(20):
        agreement.add(0.1, 0.09)
    with pytest.raises(Finding, match="in 21 of 1021 calls"):
        agreement.add(0.1, 0.2)


def test_the_snapshot_is_taken_when_the_answer_is_there_and_not_when_the_runner_has_been_stopped(bench: Bench) -> None:
    model(bench, lambda x: 2 * x)
    bench.attach(inputs_of(X))
    bench.call(inputs_of(X))
    exchange = bench.handle.exchange

    def slow_to_stop(*given: Any, answered: Any = None, **more: Any) -> tuple[Any, TimedReply]:
        reply, turn = exchange(*given, answered=answered, **more)
        if answered is not None:
            shared = bench.buffer.outputs.shared
            assert shared is not None
            ctypes.memset(shared.address, 0, X.nbytes)  # what is still written before the runner stands still
            time.sleep(0.05)
        return reply, TimedReply(turn.body, turn.answered_s, turn.seconds + 0.05, turn.began)

    bench.handle.exchange = slow_to_stop  # type: ignore[method-assign]
    found = bench.call(inputs_of(X))
    assert torch.equal(bench.value(found.outputs.tensors[0]), 2 * X)
    assert found.seconds < 0.05
    assert bench.platform.handover_s(bench.as_handle, inputs_of(X), ()) < 0.05


def test_the_clock_of_outputs_on_the_host_ends_when_the_runner_stands_still(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_module, "on_device", lambda row: False)
    model(bench, lambda x: 2 * x)
    bench.attach(inputs_of(X))
    exchange = bench.handle.exchange

    def slow_to_stop(*given: Any, **more: Any) -> tuple[Any, TimedReply]:
        reply, turn = exchange(*given, **more)
        return reply, TimedReply(turn.body, turn.answered_s, turn.seconds + 0.05, turn.began)

    bench.handle.exchange = slow_to_stop  # type: ignore[method-assign]
    assert bench.call(inputs_of(X)).seconds >= 0.05


def test_outputs_that_need_more_than_those_of_the_last_call_are_taken_whole(bench: Bench) -> None:
    model(bench, lambda x: x.repeat(3) if x.sum() > 0 else x + 1)
    more, less = torch.ones(1000), -torch.ones(1000)
    bench.attach(inputs_of(more))
    for x in (less, more, more, less, more):
        [row] = bench.call(inputs_of(x)).outputs.tensors
        assert torch.equal(bench.value(row), x.repeat(3) if x.sum() > 0 else x + 1)
    assert not bench.driver.marks  # all were given back


def test_the_clock_holds_the_runners_time_and_the_snapshot(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    model(bench, lambda x: (time.sleep(0.02), x.clone())[1])
    bench.attach(inputs_of(X))
    bench.call(inputs_of(X))
    copy = HostDriver.copy
    monkeypatch.setattr(HostDriver, "copy", lambda *given: (time.sleep(0.03), copy(*given))[1])
    assert bench.call(inputs_of(X)).seconds >= 0.05
    assert bench.platform.handover_s(bench.as_handle, inputs_of(X), ()) < 0.02
