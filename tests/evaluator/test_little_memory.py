"""Evaluations in a sandbox whose memory holds few copies: the referee keeps fewer, and is fooled no more than else."""

from dataclasses import replace

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from evaluator.referee.pool.memory_need import BASE_BYTES, TEMPORARIES
from evaluator.task_check import check_task
from sandbox.base import Sandbox
from tasks.build import task_from_source

pytestmark = pytest.mark.docker
EFFORT = Effort(
    wall_s=280, memory_mb=1500, call_timeout_s=20, build_timeout_s=20, measure_budget_s=0.5, baselines=("eager",)
)
# What it makes besides its output leaves memory for few copies, and its inputs are judged quickly.
OP = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        wide = x.repeat(24, 1)
        return torch.relu(x) + 1

def get_inputs():
    return [torch.randn(512, 1024)]

def get_init_inputs():
    return []
"""
CANDIDATE = """
import os
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.out = [torch.empty(512, 1024) for _ in range({buffers})]

    def forward(self, x):
        self.calls += 1
        {body}
"""
RIGHT = CANDIDATE.format(buffers=0, body="return torch.relu(x).add_(1)")
WRONG = CANDIDATE.format(buffers=0, body="return torch.relu(torch.nan_to_num(x)).add_(1)")
WRONG_LATER = CANDIDATE.format(
    buffers=0, body="return torch.relu(x).add_(1 if self.calls < 20 or self.calls % 3 else 2)"
)
THREE_BUFFERS = CANDIDATE.format(buffers=3, body="return torch.add(torch.relu(x), 1, out=self.out[self.calls % 3])")
LATE = (
    CANDIDATE.format(
        buffers=0,
        body="""y = torch.relu(x)
        if self.calls < 20:
            return y.add_(1)
        threading.Thread(target=finish, args=(y,), daemon=True).start()
        return y""",
    )
    + """
import threading
import time

def finish(y):
    time.sleep(0.02)  # until the answer has been sent
    y.add_(1)
"""
)
IN_PLACE = OP.replace("torch.relu(x) + 1", "x.mul_(2)")
RIGHT_IN_PLACE = CANDIDATE.format(buffers=0, body="return x.add_(x)")
WRONG_IN_PLACE = CANDIDATE.format(buffers=0, body="return x.mul_(2 if self.calls < 20 or self.calls % 3 else 4)")
TWO_BUFFERS = CANDIDATE.format(buffers=2, body="return torch.add(torch.relu(x), 1, out=self.out[self.calls % 2])")
HOARDER = (
    CANDIDATE.format(buffers=0, body="self.calls == 2 and hoard()\n        return torch.relu(x).add_(1)")
    + """
FILES = {"/sys/fs/cgroup/memory.stat": "/sys/fs/cgroup/memory.max"}
FILES["/sys/fs/cgroup/memory/memory.stat"] = "/sys/fs/cgroup/memory/memory.limit_in_bytes"
hoards = []

def used(path):
    # Without pages of files, which make room for others.
    told = dict(line.split() for line in open(path))
    return sum(int(told.get("total_" + name, told.get(name, 0))) for name in ("rss", "anon", "shmem"))

def hoard():
    # Files in memory that are not mapped are in no process's account.
    stat, most = next(each for each in FILES.items() if os.path.exists(each[0]))
    while int(open(most).read()) - used(stat) > 44 << 20:
        hoards.append(os.memfd_create("hoard"))
        os.write(hoards[-1], bytes(4 << 20))
"""
)


def judged(source: str, sandbox: Sandbox, op: str = OP) -> Evaluation:
    task = task_from_source(op, name="op")
    return evaluate(task, source, sandbox=sandbox, platform=load_platform("cpu"), effort=EFFORT)


@pytest.mark.timeout(320)
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(WRONG, "wrong_output/nan", id="wrong on NaN"),
        pytest.param(WRONG_LATER, "wrong_output/", id="wrong in later calls"),
        pytest.param(LATE, "wrong_output/", id="outputs that are finished after the answer"),
        pytest.param(TWO_BUFFERS, "wrong_output/buffer_reused", id="two buffers in turn"),
        pytest.param(THREE_BUFFERS, "wrong_output/buffer_reused", id="three buffers in turn"),
        pytest.param(HOARDER, "out_of_memory/", id="memory hidden from its account"),
    ],
)
def test_what_is_wrong_is_found_with_few_copies(source: str, expected: str, docker_sandbox: Sandbox) -> None:
    found = judged(source, docker_sandbox)
    assert f"{found.verdict.value}/{found.code or ''}".startswith(expected), f"{found.message}\n{found.detail}"


@pytest.mark.timeout(320)
def test_what_is_right_passes_with_few_copies(docker_sandbox: Sandbox) -> None:
    found = judged(RIGHT, docker_sandbox)
    assert found.passed, f"{found.verdict}: {found.message}\n{found.detail}"
    beside = found.to_json()["correctness"]["neighbours"]
    assert "too large for the sandbox's memory" in str(beside), "memory was short, so this test tests what it says"


@pytest.mark.timeout(320)
@pytest.mark.parametrize("outputs", ["y[:64], y, {'z': y.t()}", "y, x.mul_(2)"])
def test_what_is_right_is_known_for_outputs_that_share_memory(outputs: str, docker_sandbox: Sandbox) -> None:
    op = OP.replace("return torch.relu(x) + 1", f"y = torch.relu(x) + 1\n        return {outputs}")
    right = judged(
        CANDIDATE.format(buffers=0, body=f"y = torch.relu(x) + 1\n        return {outputs}"), docker_sandbox, op
    )
    assert right.passed, f"{right.verdict}: {right.message}\n{right.detail}"
    assert "compared with the reference itself" not in str(right.to_json()["correctness"]), "there is an oracle"
    slightly = f"y = torch.relu(x) + 1\n        y[-1, -1] += 1e-3\n        return {outputs}"
    wrong = judged(CANDIDATE.format(buffers=0, body=slightly), docker_sandbox, op)
    assert wrong.verdict.value == "wrong_output", wrong.message


@pytest.mark.timeout(320)
def test_an_op_in_place_is_judged_in_timed_calls_too(docker_sandbox: Sandbox) -> None:
    right = judged(RIGHT_IN_PLACE, docker_sandbox, IN_PLACE)
    assert right.passed, f"{right.verdict}: {right.message}\n{right.detail}"
    wrong = judged(WRONG_IN_PLACE, docker_sandbox, IN_PLACE)
    assert (wrong.verdict.value, "timed call" in wrong.message) == ("wrong_output", True), wrong.message


@pytest.mark.timeout(320)
@pytest.mark.parametrize(
    "generated", ["torch.randn(1024, 1024)", "torch.randn(96, 1024, 1024)[0].clone()"], ids=["alone", "of much more"]
)
def test_what_a_call_takes_besides_is_seen_whatever_making_the_inputs_has_taken(
    generated: str, docker_sandbox: Sandbox
) -> None:
    op = OP.replace("torch.relu(x) + 1", "torch.relu(x).repeat(64, 1).sum(1)").replace(
        "torch.randn(512, 1024)", generated
    )
    found = check_task(
        task_from_source(op, name="op"),
        sandbox=docker_sandbox,
        platform=load_platform("cpu"),
        effort=replace(EFFORT, memory_mb=4000),
    )
    assert found.ok, found
    assert found.need_mb is not None
    assert found.need_mb > (BASE_BYTES >> 20) + TEMPORARIES * 64 * 4, "64 copies of 4 MiB"
