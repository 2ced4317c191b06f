"""The clock: it runs until everything is there, and nobody but the referee can stop it."""

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tasks.outcomes import Verdict

pytestmark = pytest.mark.docker
EFFORT = Effort(wall_s=120, memory_mb=4096, measure_budget_s=0.5, baselines=("eager",))
TASK = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(256, 1024)]


def get_init_inputs():
    return []
"""
# Sends a part of its answer to a timed call, sleeps, and only then works and sends the rest.
IN_PARTS = """
import sys
import time

import torch
import torch.nn as nn

frame = sys._getframe()
while not hasattr(frame.f_locals.get("self"), "loop"):
    frame = frame.f_back
frame.f_locals["self"].loop = None  # Python does now what is replaced below

framing = sys.modules["referee.protocol.framing"]
send_body = framing.send_body


class Rest:
    def __init__(self, sock, sent):
        self.sock, self.sent = sock, sent

    def sendall(self, data):
        self.sock.sendall(data[self.sent:])


framing.send_body = lambda sock, body: send_body(Rest(sock, sent.pop() if sent else 0), body)
sent = []


class ModelNew(nn.Module):
    def forward(self, x):
        frame = sys._getframe()
        while "runner/main" not in frame.f_code.co_filename:
            frame = frame.f_back
        if frame.f_code.co_name == "call":
            frame.f_locals["self"].sock.sendall(b"\\0")
            sent.append(1)
        time.sleep(0.005)
        return torch.softmax(x, dim=-1)
"""


def judged(candidate: str, sandbox: Sandbox) -> Evaluation:
    task = task_from_source(TASK, name="op")
    return evaluate(task, candidate, sandbox=sandbox, platform=load_platform("cpu"), effort=EFFORT)


def test_part_of_an_answer_stops_no_clock(shared_docker_sandbox: Sandbox) -> None:
    found = judged(IN_PARTS, shared_docker_sandbox)
    assert found.verdict is Verdict.PASSED, found.detail
    assert not {"faster", "faster_than_compile"} & set(found.tags)
    assert found.latency_ms["candidate"].low > 5.0


# Works when its last outputs are let go of.
LEFT_OVER = """
import time
import weakref

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, dim=-1)
        weakref.finalize(y, time.sleep, 0.005)
        return y
"""


def test_what_is_left_to_be_done_with_the_last_outputs_counts_in_the_next_call(shared_docker_sandbox: Sandbox) -> None:
    found = judged(LEFT_OVER, shared_docker_sandbox)
    assert found.verdict is Verdict.PASSED, found.detail
    assert not {"faster", "faster_than_compile"} & set(found.tags)
    assert found.latency_ms["candidate"].low > 5.0


# A kernel timer undoes each stop signal, while a thread does the work that the answer says is done.
CONTINUED = """
import ctypes
import os
import signal
import threading

import torch
import torch.nn as nn

LIBC = ctypes.CDLL(None, use_errno=True)


class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("how", ctypes.c_int), ("pad", ctypes.c_char * 48)]


class Times(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")]


TIMER = ctypes.c_void_p()
assert LIBC.timer_create(1, ctypes.byref(Event(None, signal.SIGCONT, 0)), ctypes.byref(TIMER)) == 0


def every(nanoseconds):
    LIBC.timer_settime(TIMER, 0, ctypes.byref(Times(0, nanoseconds, 0, nanoseconds)), None)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.todo = threading.Event()
        self.job = None
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            self.todo.wait()
            self.todo.clear()
            x, y = self.job
            for _ in range(40):
                torch.softmax(x, dim=-1, out=y)
            every(0)

    def forward(self, x):
        y = torch.empty_like(x)
        self.job = (x, y)
        every(10_000)
        self.todo.set()
        return y
"""


def test_a_timer_that_undoes_each_stop_gains_nothing(shared_docker_sandbox: Sandbox) -> None:
    found = judged(CONTINUED, shared_docker_sandbox)
    # However it ends, the work has not become free: refused, or as slow as forty times the work is.
    assert not found.passed or (found.speedup is not None and found.speedup["eager"].high < 0.5), found.message


SLEEPS = """
import time

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        time.sleep({seconds})
        return torch.softmax(x, dim=-1)
"""


@pytest.mark.parametrize(("seconds", "least_ms"), [(0.004, 4.0), (0.05, None)])
def test_a_proof_says_what_the_call_takes_when_it_is_repeated_at_once(
    shared_docker_sandbox: Sandbox, seconds: float, least_ms: float | None
) -> None:
    task, source = task_from_source(TASK, name="softmax"), SLEEPS.format(seconds=seconds)
    found = evaluate(task, source, sandbox=shared_docker_sandbox, platform=load_platform("cpu"), effort=EFFORT)
    assert found.verdict is Verdict.PASSED, found.message
    if least_ms is None:
        assert "repeated_call_ms" not in found.profile, "too long to be repeated"
        return
    assert least_ms <= found.profile["repeated_call_ms"] < 3 * least_ms
    assert found.profile["timed_call_ms"] >= least_ms


def test_a_hand_over_is_a_call_of_a_model_that_does_nothing_and_the_model_runs_again_afterwards(
    shared_docker_sandbox: Sandbox,
) -> None:
    work = "        time.sleep(0.02)\n        return torch.softmax(x, dim=-1)\n"
    op = TASK.replace("import torch\n", "import time\n\nimport torch\n", 1).replace(
        "        return torch.softmax(x, dim=-1)\n", work
    )
    candidate = f"import time\n\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n{work}"
    task = task_from_source(op, name="sleeps")
    found = evaluate(task, candidate, sandbox=shared_docker_sandbox, platform=load_platform("cpu"), effort=EFFORT)
    assert found.verdict is Verdict.PASSED, found.message
    assert 0.01 < found.profile["handover_ms"] < 10.0
    assert found.latency_ms["eager"].median > 20.0 and "too_short" not in found.tags


@pytest.mark.parametrize("forward", ["x + 1", "self.norm(x)"], ids=["stateless", "changes state"])
def test_a_call_that_takes_hardly_more_than_its_hand_over_is_too_short(
    shared_docker_sandbox: Sandbox, forward: str
) -> None:
    model = f"""import torch
import torch.nn as nn


class NAME(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x):
        return {forward}
"""
    inputs = "\n\ndef get_inputs():\n    return [torch.randn(8, 16)]\n\n\ndef get_init_inputs():\n    return []\n"
    task = task_from_source(model.replace("NAME", "Model") + inputs, name="short")
    candidate = model.replace("NAME", "ModelNew")
    found = evaluate(task, candidate, sandbox=shared_docker_sandbox, platform=load_platform("cpu"), effort=EFFORT)
    assert found.verdict is Verdict.PASSED, found.message
    assert "too_short" in found.tags, (found.latency_ms, found.profile["handover_ms"])
