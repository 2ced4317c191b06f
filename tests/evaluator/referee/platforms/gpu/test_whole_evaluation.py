"""Whole evaluations by the referee's part for GPUs, in a real sandbox; the device is stood in for (`whole.py`)."""

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.base import Command, Limits
from sandbox.process.sandbox import ProcessSandbox
from tests.platforms.gpu.attacks import ATTACKS
from tests.platforms.gpu.ops import DEEP_PRODUCT
from tests.platforms.kits import CPU, OP

FIRST = CPU.cheats["the first answer for every call"]
LATE = CPU.right.replace(
    "return F.relu(x * self.weight) + x",
    "import threading; y = torch.zeros_like(x); "
    "threading.Timer(0.002, lambda: y.copy_(F.relu(x * self.weight) + x)).start(); return y",
)


def judged(sandbox: ProcessSandbox, package: Path, candidate: str, **more: Any) -> dict[str, Any]:
    asked = {"task_source": OP, "candidate_source": candidate, "baselines": ["eager"], "measure_budget_s": 0.5, **more}
    command = Command(package, stdin=json.dumps({"memory_mb": 3072, **asked}).encode(), limits=Limits(memory_mb=3072))
    done = sandbox.run(command)
    assert done.exit_code == 0, done.stderr.decode()[-3000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_a_right_candidate_is_timed_and_every_stage_gone_through(
    process_sandbox: ProcessSandbox, package: Path
) -> None:
    found = judged(process_sandbox, package, CPU.right)
    assert found["verdict"] == "passed", f"{found['message']}\n{found['detail']}"
    assert found["speedup"].keys() == {"eager"} and found["latency_ms"]["candidate"]["median"] > 0
    assert "custom_kernel" in found["tags"]
    assert found["profile"]["kernels_claimed"] == [["own", 1.0]]
    assert {"reference", "build", "correctness", "timing", "limits", "neighbours"} <= found["cost_s"].keys()


@pytest.mark.parametrize("candidate", [FIRST, LATE], ids=["first", "late"])
def test_what_is_wrong_or_late_is_refused(process_sandbox: ProcessSandbox, package: Path, candidate: str) -> None:
    found = judged(process_sandbox, package, candidate)
    assert found["verdict"] == "wrong_output", f"{found['verdict']}: {found['message']}\n{found['detail']}"
    assert found["speedup"] is None


WITHOUT_CUDA = (
    "the answer to the last inputs at this address",
    "honest while it is checked",
    "uninitialised memory",
    "the referee's memory for outputs is read",
    "memory of other processes by their file descriptors",
    "one output for all calls",
    "writes to its inputs",
    "an output in the memory of its inputs",
    "changes the inputs that it was given for others",
    "half of the work, in bfloat16",
    "a float32 product in bfloat16",
)


@pytest.mark.parametrize("name", WITHOUT_CUDA)
def test_an_attack_that_needs_no_gpu_is_refused_as_on_one(
    process_sandbox: ProcessSandbox, package: Path, name: str
) -> None:
    attack = ATTACKS[name]
    found = judged(process_sandbox, package, attack.source, task_source=attack.op.replace("512", "64"))
    assert found["verdict"] in attack.verdicts, f"{found['verdict']}: {found['message']}\n{found['detail']}"


_TF32 = """
import torch


def parts(x):
    high = (x.contiguous().view(torch.int32) & -8192).view(torch.float32)
    return high, ((x - high).view(torch.int32) & -8192).view(torch.float32)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (ah, al), (bh, bl) = parts(a), parts(b)
        return {sum}
"""
"""Products of numbers with the 10 bits of TF32, as tensor cores make them."""


@pytest.mark.parametrize(
    ("products", "verdict"),
    [("ah @ bh", "wrong_output"), ("ah @ bl + al @ bh + ah @ bh", "passed")],
    ids=["one", "three"],
)
def test_one_product_in_tf32_is_refused_and_three_are_taken_for_float32(
    process_sandbox: ProcessSandbox, package: Path, products: str, verdict: str
) -> None:
    op = DEEP_PRODUCT.replace("512", "64") + '\nDOMAIN = "finite"\n'
    found = judged(process_sandbox, package, _TF32.format(sum=products), task_source=op)
    assert found["verdict"] == verdict, f"{found['verdict']}: {found['message']}\n{found['detail']}"
