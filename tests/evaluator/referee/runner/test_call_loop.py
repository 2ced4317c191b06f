"""The compiled loop of a timed call does what Python does, and leaves to Python what has another form."""

import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from evaluator.referee.protocol import call_messages, framing
from evaluator.referee.protocol.call_messages import KEEP_ALL, Go
from evaluator.referee.protocol.tensors import DTYPES
from evaluator.referee.runner import call_loop
from evaluator.referee.runner.call_loop import CallLoop
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tests.evaluator.referee.protocol.test_call_messages import OTHERS, SHAPES

READY = framing.framed(b'{"ok": true}')


class Runner:
    """The loop at one end of a connection, the test as the referee at the other."""

    def __init__(self, loop: CallLoop) -> None:
        self.loop = loop
        self.referee, self.sock = socket.socketpair()
        self.referee.settimeout(10)
        self.kept: list[Any] = []

    def call(self, model: Any, *arguments: Any, go: Go | None = None) -> Any:
        """What the loop returns for a call whose go lies ready."""
        framing.send_body(self.referee, (go or Go(7)).pack())
        return self.loop.call(self.sock.fileno(), READY, model, arguments, self.kept)

    def answer(self) -> bytes | None:
        """The body that was sent after the word that a call may begin; None if nothing was."""
        assert self.referee.recv(len(READY)) == READY
        self.referee.settimeout(0.01)
        try:
            return framing.receive_last(self.referee)
        except (TimeoutError, BlockingIOError):
            return None
        finally:
            self.referee.settimeout(10)


@pytest.fixture(scope="module")
def loop() -> CallLoop:
    found = call_loop.load()
    assert found is not None, "make setup compiles it"
    return found


@pytest.fixture
def runner(loop: CallLoop) -> Iterator[Runner]:
    opened = Runner(loop)
    with opened.referee, opened.sock:
        yield opened


@settings(max_examples=60)
@given(
    forms=st.lists(st.tuples(SHAPES, st.sampled_from(list(DTYPES.values()))), min_size=1, max_size=4),
    kind=st.sampled_from([tuple, list]),
    alone=st.booleans(),
    turned=st.booleans(),
)
def test_it_answers_as_python_does(
    loop: CallLoop, forms: list[tuple[tuple[int, ...], torch.dtype]], kind: type, alone: bool, turned: bool
) -> None:
    tensors = [torch.zeros(shape, dtype=dtype) for shape, dtype in forms]
    tensors = [tensor.mT if turned and tensor.dim() > 1 else tensor for tensor in tensors]
    value: Any = tensors[0] if alone else kind(tensors)
    runner = Runner(loop)
    with runner.referee, runner.sock:
        assert runner.call(lambda: value) is None
        assert runner.answer() == call_messages.pack(value)
    assert runner.kept[-1] is value


@pytest.mark.parametrize("other", OTHERS, ids=[str(index) for index in range(len(OTHERS))])
def test_a_value_of_another_form_is_returned_and_not_answered(runner: Runner, other: Any) -> None:
    found = runner.call(lambda: other)
    assert type(found) is tuple and found[0] is other
    assert runner.answer() is None and runner.kept == []


def test_the_model_gets_its_arguments_and_the_seed_of_the_go(runner: Runner) -> None:
    given: list[Any] = []

    def model(*arguments: Any) -> torch.Tensor:
        given.append(arguments)
        return torch.rand(3)

    x, y = torch.zeros(2), [torch.ones(1)]
    for seed in (0, 7, (1 << 64) - 1):
        runner.call(model, x, y, go=Go(seed))
        torch.manual_seed(seed if seed < 1 << 63 else seed - (1 << 64))
        assert torch.equal(runner.kept[-1], torch.rand(3))
    assert all(arguments[0] is x and arguments[1] is y for arguments in given)


def test_outputs_of_earlier_calls_are_let_go_before_the_model_runs(runner: Runner) -> None:
    held: list[int] = []

    def model() -> torch.Tensor:
        held.append(len(runner.kept))
        return torch.zeros(1)

    for keep in (3, 3, 3, 1, 0, 2):
        runner.call(model, go=Go(1, keep))
    assert held == [0, 1, 2, 1, 0, 1]


@pytest.mark.parametrize(
    "go", [Go(5, KEEP_ALL), Go(5, state=("weight",)), Go(5, spec={"tuple": [{"scalar": 1.0}]})], ids=str
)
def test_a_go_of_another_form_is_returned_before_anything_is_done(runner: Runner, go: Go) -> None:
    runner.kept.append("an output")
    received = runner.call(lambda: pytest.fail("the model was called"), go=go)
    assert Go.unpack(framing.receive_last(runner.sock, read=received)) == Go(go.seed, go.keep, go.spec, go.state)
    assert runner.answer() is None and runner.kept == ["an output"]


def test_a_go_that_has_arrived_in_part_is_returned_and_read_on(runner: Runner) -> None:
    body = framing.framed(Go(5).pack())
    runner.referee.sendall(body[:9])
    received = runner.loop.call(runner.sock.fileno(), READY, None, (), runner.kept)
    assert received == body[:9]
    runner.referee.sendall(body[9:])
    assert Go.unpack(framing.receive_last(runner.sock, read=received)) == Go(5)


def test_what_the_model_raises_is_raised_and_not_answered(runner: Runner) -> None:
    def model() -> None:
        raise ZeroDivisionError("no")

    with pytest.raises(ZeroDivisionError, match="no"):
        runner.call(model)
    assert runner.answer() is None and runner.kept == []


def test_a_tensor_without_plain_memory_is_returned_and_not_answered(runner: Runner) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nested tensors are new
        nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    found = runner.call(lambda: nested)
    assert type(found) is tuple and found[0] is nested
    assert runner.answer() is None and runner.kept == []


@pytest.mark.parametrize("count", [0xFFFF, 0x10000])
def test_an_answer_may_be_longer_than_what_a_socket_holds_and_have_65535_tensors(runner: Runner, count: int) -> None:
    value = [torch.zeros(1)] * count
    body, received = call_messages.pack(value), list[bytes]()
    assert (body is not None) == (count == 0xFFFF)
    runner.referee.settimeout(None)

    def receive() -> None:
        assert runner.referee.recv(len(READY), socket.MSG_WAITALL) == READY
        if body is not None:
            received.append(framing.receive_last(runner.referee))

    thread = threading.Thread(target=receive)
    thread.start()
    found = runner.call(lambda: value)
    thread.join(timeout=30)
    if body is None:
        assert found[0] is value and received == []
    else:
        assert found is None and received == [body]


def test_a_referee_that_has_gone_before_the_answer_is_an_error(runner: Runner) -> None:
    def model() -> torch.Tensor:
        runner.referee.close()
        return torch.zeros(1)

    with pytest.raises(OSError):
        runner.call(model)


def test_nothing_is_held_once_a_call_is_over(runner: Runner) -> None:
    x, value = torch.zeros(3), torch.zeros(2)
    before = [sys.getrefcount(each) for each in (x, value)]
    for _ in range(50):
        runner.call(lambda _: value, x, go=Go(1, 0))
        runner.answer()
    runner.kept.clear()
    assert [sys.getrefcount(each) for each in (x, value)] == before


def test_a_module_of_another_version_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "0.0.0")
    assert call_loop.load() is None


def test_a_closed_connection_is_told_as_one(runner: Runner) -> None:
    runner.referee.shutdown(socket.SHUT_WR)
    received = runner.loop.call(runner.sock.fileno(), READY, None, (), runner.kept)
    with pytest.raises(framing.WireError, match="connection closed"):
        framing.receive_last(runner.sock, read=received)


def test_wrong_arguments_are_refused(runner: Runner) -> None:
    with pytest.raises(TypeError, match="call"):
        runner.loop.call(runner.sock.fileno(), READY, None, [], runner.kept)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dtype"):
        runner.loop.set_codes({"float32": 1})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="code"):
        runner.loop.set_codes({torch.float32: 300})
    runner.loop.set_codes(call_messages.CODES)


OP = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n\n"
OP += "def get_inputs():\n    return [torch.rand(64, 64)]\n\ndef get_init_inputs():\n    return []\n"
ASKS = """
import sys, torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        frame = sys._getframe(1)
        while not hasattr(frame.f_locals.get("self"), "loop"):
            frame = frame.f_back
        runner = frame.f_locals["self"]
        if runner.loop is None or "call_loop" not in repr(runner.loop):
            raise RuntimeError("no compiled loop")
        return x + 1
"""


def test_runners_have_it(sandbox: Sandbox) -> None:
    effort = Effort(wall_s=120, memory_mb=4096, measure_budget_s=0.2, baselines=("eager",))
    task = task_from_source(OP, name="asks")
    found = evaluate(task, ASKS, sandbox=sandbox, platform=load_platform("cpu"), effort=effort)
    assert found.verdict.value == "passed", found.message
    assert found.provenance["versions"]["call_loop"] == "C++"
