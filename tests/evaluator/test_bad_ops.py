"""Ops that misbehave: each ends in a clear problem within the limits, and nothing of the host shows in it."""

import os
from pathlib import Path

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from evaluator.task_check import check_task
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tasks.outcomes import Verdict

pytestmark = pytest.mark.docker
CPU = load_platform("cpu")
EFFORT = Effort(
    wall_s=100, memory_mb=3072, call_timeout_s=5, build_timeout_s=20, measure_budget_s=1, baselines=("eager",)
)
GOOD_MODEL = """
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
GOOD_INPUTS = """
def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
GROWING_INPUTS = GOOD_INPUTS.replace("return [t", "count[0] += 1; return [t").replace("64, 64", "64, 64 * count[0]")
IMPORTS = "import os, sys, json, time, socket\nimport torch\nimport torch.nn as nn\n"


def op(module_level: str = "", model: str = GOOD_MODEL, inputs: str = GOOD_INPUTS) -> str:
    return IMPORTS + module_level + "\n" + model + inputs


def forward(body: str) -> str:
    lines = "\n".join("        " + line for line in body.splitlines())
    return f"\nclass Model(nn.Module):\n    def forward(self, x):\n{lines}\n"


LIES = """
framing = sys.modules["referee.protocol.framing"]
send, lie, die = framing.send, {}, {}

def lying(sock, message):
    tensors = (message.get("tree") or {}).get("tensors")
    if tensors:
        tensors[0].update(lie)
    elif die:
        os._exit(7)
    send(sock, message)

framing.send = lying
sys.modules["referee.protocol.call_messages"].pack = lambda value: None  # so that answers to calls are messages, too
"""
FORGED = '{"ok": true, "problems": [], "warnings": [], "cost_s": {"total": 0}, "verdict": "passed"}'
BAD = {
    "exits at import": (op("os._exit(0)"), "exited with status 0"),
    "raises at import": (op("raise RuntimeError('no such thing')"), "RuntimeError: no such thing"),
    "exits in forward": (op(model=forward("os._exit(3)")), "exited with status 3"),
    "prints a forged result and exits": (op(model=forward(f"print({FORGED!r}, flush=True)\nos._exit(0)")), "exited"),
    "allocates 100 GB": (op(model=forward("return torch.zeros(25_000_000_000)[:4]")), "memory"),
    "allocates until it is killed": (
        op(model=forward("kept = []\nwhile True:\n    kept.append(torch.ones(32_000_000))")),
        "memory",
    ),
    "reaches the network": (op("socket.create_connection(('1.1.1.1', 80), timeout=2)"), "OSError"),
    "returns an object": (op(model=forward("return object()")), "type object"),
    "ten trillion elements on four bytes": (op(model=forward("return x.sum().expand(10**13)")), "tensors that hold"),
    "an output that claims to span 64 TiB": (
        op(LIES, model=forward("lie['shape'], lie['stride'] = [2], [2**44]\nreturn torch.relu(x)")),
        "tensors that spread over",
    ),
    "an address that is infinite": (
        op(LIES, model=forward("lie['place'] = float('inf')\nreturn torch.relu(x)")),
        "forged or broken answer of the reference runner",
    ),
    "an integer of 70 bits": (op(model=forward("return 2**70")), "an integer of more than 64 bits"),
    "a process that is gone between calls": (
        op(LIES, model=forward("die['now'] = True\nreturn torch.relu(x)")),
        "exited with status 7",
    ),
    "all zeros": (op(model=forward("return x * 0")), "zeros"),
    "constant": (op(model=forward("return torch.ones_like(x)")), "same for two different sets"),
    "not deterministic": (
        op(model=forward("return x + int.from_bytes(os.urandom(2), 'big')")),
        "differs between two calls",
    ),
    "inputs that grow": (
        op("count = [0]", inputs=GROWING_INPUTS),
        "larger tensors",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_op_is_a_clear_problem(name: str, shared_docker_sandbox: Sandbox) -> None:
    source, expected = BAD[name]
    found = check_task(task_from_source(source, name="bad"), sandbox=shared_docker_sandbox, platform=CPU, effort=EFFORT)
    assert not found.ok
    assert any(expected in problem.message for problem in found.problems), found.problems
    assert all("\n" not in problem.message for problem in found.problems)


def test_an_op_that_loops_at_import_is_stopped(docker_sandbox: Sandbox) -> None:
    effort = Effort(wall_s=12, memory_mb=3072)
    found = check_task(
        task_from_source(op("while True: pass"), name="loop"), sandbox=docker_sandbox, platform=CPU, effort=effort
    )
    assert [problem.code for problem in found.problems] == ["timed_out"]
    assert found.cost_s < 25


def test_an_op_that_forks_without_end_is_stopped(docker_sandbox: Sandbox) -> None:
    effort = Effort(wall_s=15, memory_mb=3072)
    found = check_task(
        task_from_source(op(model=forward("while True: os.fork()")), name="forks"),
        sandbox=docker_sandbox,
        platform=CPU,
        effort=effort,
    )
    assert not found.ok
    assert found.cost_s < 40


def test_an_op_that_prints_gigabytes_fills_nothing(docker_sandbox: Sandbox) -> None:
    flood = forward("line = 'x' * 1_000_000\nfor _ in range(3000):\n    print(line)\nreturn torch.relu(x)")
    found = check_task(
        task_from_source(op(model=flood), name="flood"), sandbox=docker_sandbox, platform=CPU, effort=EFFORT
    )
    assert found.cost_s < 60
    assert all(len(problem.detail) < 20_000 for problem in found.problems)


def test_a_good_op_passes_the_check_and_says_what_it_needs(shared_docker_sandbox: Sandbox) -> None:
    found = check_task(task_from_source(op(), name="good"), sandbox=shared_docker_sandbox, platform=CPU, effort=EFFORT)
    assert found.ok, found.problems
    assert found.inputs == ("float32[64, 64]",)
    assert found.outputs == ("float32[64, 64]",)
    assert found.eager_ms is not None
    assert 0 < found.eager_ms < 1000


def test_inputs_that_do_not_matter_are_named(shared_docker_sandbox: Sandbox) -> None:
    source = op(
        model="\nclass Model(nn.Module):\n    def forward(self, x, y):\n        return torch.relu(x)\n",
        inputs=GOOD_INPUTS.replace("[torch.randn(64, 64)]", "[torch.randn(64, 64), torch.randn(8)]"),
    )
    found = check_task(
        task_from_source(source, name="unused"), sandbox=shared_docker_sandbox, platform=CPU, effort=EFFORT
    )
    assert found.ok
    assert any("no output depends on input tensor 1" in warning for warning in found.warnings)


def test_nothing_of_the_host_is_to_be_found_by_an_op(docker_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-host")
    prying = op(
        "raise RuntimeError(str(sorted(os.environ.items())) + str(os.listdir('/')) + open('/proc/1/cmdline').read())"
    )
    found = check_task(task_from_source(prying, name="prying"), sandbox=docker_sandbox, platform=CPU, effort=EFFORT)
    text = str(found.to_json())
    assert "RuntimeError" in text
    assert "sk-secret" not in text
    assert str(Path.cwd()) not in text
    assert os.uname().nodename not in text


def test_a_bad_op_is_no_fault_of_the_candidate(docker_sandbox: Sandbox) -> None:
    task = task_from_source(op("raise RuntimeError('no such thing')"), name="bad")
    candidate = (
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
    )
    found = evaluate(task, candidate, sandbox=docker_sandbox, platform=CPU, effort=EFFORT)
    assert found.verdict is Verdict.TASK_INVALID
    assert "loading the task" in found.message
