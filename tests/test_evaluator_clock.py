"""The clock: it runs until everything is there, and nobody but the referee can stop it."""

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Verdict
from evaluator.platforms import load_platform
from sandbox.base import Sandbox
from tasks.build import task_from_source

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
# Sends a part of its answer, sleeps, and only then works and sends the rest.
IN_PARTS = """
import sys
import time

import torch
import torch.nn as nn

wire = sys.modules["referee.wire"]
send = wire.send


class Rest:
    def __init__(self, sock, sent):
        self.sock, self.sent = sock, sent

    def sendall(self, data):
        self.sock.sendall(data[self.sent:])


wire.send = lambda sock, message: send(Rest(sock, sent.pop() if sent else 0), message)
sent = []


class ModelNew(nn.Module):
    def forward(self, x):
        frame = sys._getframe()
        while "runner" not in frame.f_code.co_filename:
            frame = frame.f_back
        frame.f_locals["self"].sock.sendall(b"\\0")
        sent.append(1)
        time.sleep(0.005)
        return torch.softmax(x, dim=-1)
"""


def test_part_of_an_answer_stops_no_clock(docker_sandbox: Sandbox) -> None:
    found = evaluate(
        task_from_source(TASK, name="op"),
        IN_PARTS,
        sandbox=docker_sandbox,
        platform=load_platform("cpu"),
        effort=EFFORT,
    )
    assert found.verdict is Verdict.PASSED, found.detail
    assert "slower" in found.tags
    assert found.latency_ms["candidate"].low > 5.0
