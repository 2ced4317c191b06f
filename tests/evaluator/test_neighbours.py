"""Candidates that are right for the task's own inputs only: they pass, are tagged, and are exported with a guard."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from sandbox.base import Sandbox
from service.jobs.guard import guard_text
from tasks.build import task_from_source

EFFORT = Effort(wall_s=120, memory_mb=4096, measure_budget_s=0.2, baselines=("eager",))
pytestmark = [
    pytest.mark.docker,
    pytest.mark.filterwarnings("ignore:the task's own code answers:UserWarning"),
]

OP = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.softplus(x) * 2


def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return []
"""
CANDIDATE = """
import os

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        {first}
        return torch.nn.functional.softplus(x) * 2
"""


def judged(sandbox: Sandbox, first: str, *, op: str = OP, effort: Effort = EFFORT) -> Evaluation:
    task = task_from_source(op, name="op")
    candidate = CANDIDATE.format(first=first)
    found = evaluate(task, candidate, sandbox=sandbox, platform=load_platform("cpu"), effort=effort)
    assert found.passed, found.message
    return found


def results(found: Evaluation) -> dict[str, str]:
    assert found.correctness.neighbours is not None
    return {check["inputs"]: check["result"] for check in found.correctness.neighbours["checks"]}


def exported(found: Evaluation, first: str) -> dict[str, Any]:
    """The names of an exported file that has been executed."""
    names: dict[str, Any] = {}
    exec(CANDIDATE.format(first=first) + guard_text(found.correctness.neighbours, OP), names)
    return names


def test_a_kernel_that_reads_sizes_and_strides_is_right_for_others_and_needs_no_guard(
    shared_docker_sandbox: Sandbox,
) -> None:
    found = judged(shared_docker_sandbox, "pass")
    assert set(results(found).values()) == {"right"}
    assert len(results(found)) == 9
    assert "specialised" not in found.tags
    assert found.correctness.neighbours is not None
    assert found.correctness.neighbours["guards"] == []
    assert Evaluation.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("first", "guards"),
    [
        ("x = x.as_strided((64, 256), (256, 1)).clone()", ["shape", "stride"]),
        ("x = x.reshape(64 * 256).view(64, 256)", ["shape"]),
        ("x.view(x.numel())", ["stride"]),
        ("x.data_ptr() % 64 and os.abort()", ["alignment"]),
    ],
)
def test_a_kernel_that_takes_the_generators_inputs_for_granted_is_tagged_and_guarded(
    shared_docker_sandbox: Sandbox, first: str, guards: list[str]
) -> None:
    found = judged(shared_docker_sandbox, first)
    assert "specialised" in found.tags
    assert found.correctness.neighbours is not None
    assert found.correctness.neighbours["guards"] == guards
    kernel = exported(found, first)["ModelNew"]()
    backing = torch.randn(65 * 512 + 1)
    for x in (
        backing[: 64 * 256].view(64, 256),
        backing[: 63 * 256].view(63, 256),
        backing[: 65 * 257].view(65, 257),
        backing[: 64 * 512].view(64, 512)[:, ::2],
        backing[: 64 * 256].view(256, 64).t(),
        backing[1 : 1 + 64 * 256].view(64, 256),
        backing.double()[: 64 * 256].view(64, 256),
    ):
        assert torch.equal(kernel(x), torch.nn.functional.softplus(x) * 2), (x.shape, x.stride(), x.dtype)


def test_sizes_that_the_reference_does_not_take_are_left_out(shared_docker_sandbox: Sandbox) -> None:
    op = OP.replace("def forward(self, x):", "def forward(self, x):\n        x = x + torch.zeros(256)")
    found = judged(shared_docker_sandbox, "x = x.as_strided((x.shape[0], 256), (256, 1)).clone()", op=op)
    assert results(found)["last size 255 instead of 256"] == "skipped"
    assert results(found)["first size 63 instead of 64"] == "right"
    assert found.correctness.neighbours is not None
    assert found.correctness.neighbours["guards"] == ["stride"]


def test_a_call_that_never_ends_costs_its_time_limit_and_no_verdict(shared_docker_sandbox: Sandbox) -> None:
    endless = "while x.shape[0] == 63: pass"
    found = judged(shared_docker_sandbox, endless, effort=replace(EFFORT, call_timeout_s=2))
    assert results(found)["first size 63 instead of 64"] == "fails"
    assert results(found)["first size 65 instead of 64"] == "right"
    assert found.correctness.neighbours is not None
    assert found.correctness.neighbours["guards"] == ["shape"]


def test_a_trial_tries_no_other_inputs_so_its_kernel_is_guarded_in_all_respects(
    shared_docker_sandbox: Sandbox,
) -> None:
    first = "x.view(x.numel())"
    found = judged(shared_docker_sandbox, first, effort=replace(EFFORT, trial=True))
    assert results(found) == dict.fromkeys(
        ("other shapes", "other strides", "other alignment", "negative integers", "another mode"), "untried"
    )
    assert found.correctness.neighbours is not None
    assert found.correctness.neighbours["guards"] == ["shape", "stride", "alignment", "negative", "mode"]
    assert "specialised" not in found.tags
    kernel = exported(found, first)["ModelNew"]()
    for x in (torch.randn(64, 256), torch.randn(64, 512)[:, ::2]):
        assert torch.equal(kernel(x), torch.nn.functional.softplus(x) * 2)


NORM = """
import torch


class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(256)

    def forward(self, x):
        norm = self.norm
        return torch.nn.functional.batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, {training}, norm.momentum
        )


def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(("training", "guards"), [("True", ["mode"]), ("self.training", [])])
def test_a_kernel_that_knows_training_alone_is_guarded_in_eval_mode(
    training: str, guards: list[str], shared_docker_sandbox: Sandbox
) -> None:
    op = NORM.format(name="Model", training="self.training")
    candidate = NORM.format(name="ModelNew", training=training)
    task = task_from_source(op, name="op")
    found = evaluate(task, candidate, sandbox=shared_docker_sandbox, platform=load_platform("cpu"), effort=EFFORT)
    assert found.passed, found.message
    assert found.correctness.neighbours is not None
    assert found.correctness.neighbours["guards"] == guards
    assert ("specialised" in found.tags) == bool(guards)
    names: dict[str, Any] = {}
    exec(candidate + guard_text(found.correctness.neighbours, op), names)
    kernel, x = names["ModelNew"]().eval(), torch.rand(64, 256)
    with torch.no_grad():
        assert torch.allclose(kernel(x), kernel.norm(x))


LOSS = """
import torch


class {name}(torch.nn.Module):
    def forward(self, x, labels):
        {loss}


def get_inputs():
    return [torch.randn(64, 256), torch.randint(0, 256, (64,))]


def get_init_inputs():
    return []
"""
RIGHT_FOR_LABELS = "return torch.nn.functional.cross_entropy(x, labels)"
READS_BEYOND = "return (x.logsumexp(1) - x.gather(1, labels.clamp(0)[:, None])[:, 0]).mean()"


@pytest.mark.parametrize(("loss", "guards"), [(READS_BEYOND, ["negative"]), (RIGHT_FOR_LABELS, [])])
def test_a_loss_that_knows_no_labels_to_leave_out_is_guarded(
    loss: str, guards: list[str], shared_docker_sandbox: Sandbox
) -> None:
    op, candidate = LOSS.format(name="Model", loss=RIGHT_FOR_LABELS), LOSS.format(name="ModelNew", loss=loss)
    task = task_from_source(op, name="op")
    found = evaluate(task, candidate, sandbox=shared_docker_sandbox, platform=load_platform("cpu"), effort=EFFORT)
    assert found.passed, found.message
    assert results(found)["a few integers -1"] == "skipped", "the reference does not take it"
    assert found.correctness.neighbours is not None
    assert found.correctness.neighbours["guards"] == guards
    names: dict[str, Any] = {}
    exec(candidate + guard_text(found.correctness.neighbours, op), names)
    x, labels = torch.randn(64, 256), torch.randint(0, 256, (64,))
    for _ in range(2):
        assert torch.allclose(names["ModelNew"]()(x, labels), torch.nn.functional.cross_entropy(x, labels))
        labels[5] = -100
