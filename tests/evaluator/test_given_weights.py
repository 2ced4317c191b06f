"""Weights that are given with an op: outputs are held to them, too, and nothing else changes."""

import struct

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from evaluator.referee.protocol.input_families import GIVEN_WEIGHTS
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tasks.outcomes import Verdict
from tasks.weights_file import Weights, read_weights
from tests.support.weights import state_file

EFFORT = Effort(wall_s=120, memory_mb=4096, measure_budget_s=0.2, baselines=("eager",))
pytestmark = pytest.mark.docker

OP = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(256) + 0.5)
        self.same = self.scale
        self.register_buffer("mask", torch.ones(256, dtype=torch.bool))
        self.register_buffer("fixed", torch.ones(256), persistent=False)

    def forward(self, x):
        return torch.tanh(x * self.scale).masked_fill(~self.mask, 0.0) + self.same * self.fixed


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
"""
_, _, BODY = OP.partition("class Model(nn.Module):")
BODY = BODY.partition("\n\ndef get_inputs")[0]


def file_with(scale: float = 3.0, size: int = 256, **more: tuple[str, list[int], bytes]) -> Weights:
    mask = bytes(index % 2 for index in range(256))
    tensors = {"scale": ("F32", [size], struct.pack("<f", scale) * size), "mask": ("BOOL", [256], mask)}
    return read_weights(state_file({**tensors, **more}))


def judged(sandbox: Sandbox, candidate: str, weights: Weights | None) -> Evaluation:
    task = task_from_source(OP, name="op")
    return evaluate(task, candidate, sandbox=sandbox, platform=load_platform("cpu"), effort=EFFORT, weights=weights)


def candidate(old: str = "", new: str = "") -> str:
    assert old in BODY
    return (
        f"import torch\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):{BODY.replace(old, new) if old else BODY}"
    )


def families(found: Evaluation) -> dict[str, bool]:
    return {check.inputs: check.passed for check in found.correctness.checks}


@pytest.mark.parametrize("given", [True, False])
def test_outputs_are_judged_on_given_weights_as_well(shared_docker_sandbox: Sandbox, given: bool) -> None:
    weights = file_with() if given else None
    found = judged(shared_docker_sandbox, candidate(), weights)
    assert found.passed, found.message
    assert families(found).get(GIVEN_WEIGHTS) is (True if given else None)
    assert found.provenance.get("weights") == (weights.digest if weights else None)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x * self.scale", "x * self.scale.clamp(max=2.0)"),  # no parameter that is drawn is as large
        ("masked_fill(~self.mask, 0.0)", "masked_fill(~self.fixed.bool(), 0.0)"),  # the constructor's mask is all ones
    ],
)
def test_what_is_right_with_drawn_parameters_alone_is_refused(
    shared_docker_sandbox: Sandbox, old: str, new: str
) -> None:
    assert judged(shared_docker_sandbox, candidate(old, new), None).passed
    found = judged(shared_docker_sandbox, candidate(old, new), file_with())
    assert found.verdict is Verdict.WRONG_OUTPUT
    assert (found.code, GIVEN_WEIGHTS in found.message) == ("given_weights", True)
    assert found.message.endswith("right with the parameters that the referee draws")


def test_a_candidate_learns_nothing_from_given_weights(shared_docker_sandbox: Sandbox) -> None:
    """One that keeps what it has made of them is wrong with those that come after, as with any others."""
    kept = candidate("x * self.scale", "x * self.__dict__.setdefault('kept', self.scale.clone())")
    assert judged(shared_docker_sandbox, kept, file_with()).verdict is Verdict.WRONG_OUTPUT


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (file_with(size=255), "of another shape: scale is (255,) in the file and (256,) in the model"),
        (file_with(other=("U8", [1], b"\0")), "unexpected: other"),
        (read_weights(state_file({"scale": ("F32", [256], b"\0" * 1024)})), "missing: mask;"),
    ],
)
def test_weights_of_another_model_are_refused_by_name(
    shared_docker_sandbox: Sandbox, weights: Weights, said: str
) -> None:
    found = judged(shared_docker_sandbox, candidate(), weights)
    assert (found.verdict, found.code) == (Verdict.TASK_INVALID, "weights")
    assert "the weights are not those of this model" in found.message and said in found.message


def test_weights_with_which_the_reference_overflows_prove_nothing(shared_docker_sandbox: Sandbox) -> None:
    found = judged(shared_docker_sandbox, candidate(), file_with(float("nan")))
    assert (found.verdict, found.code) == (Verdict.TASK_INVALID, "weights")
    assert "most of output" in found.message and "NaN or infinite" in found.message


TIED_APART = candidate("self.same = self.scale", "self.same = nn.Parameter(self.scale.detach().clone())")
UNDER_THE_OTHER_NAME = candidate("self.same = self.scale", "").replace("self.scale", "self.same")


@pytest.mark.parametrize("source", [TIED_APART, UNDER_THE_OTHER_NAME])
@pytest.mark.parametrize("name", ["scale", "same"])
def test_a_tensor_with_two_names_may_be_in_the_file_under_either_and_two_in_a_candidate(
    shared_docker_sandbox: Sandbox, source: str, name: str
) -> None:
    mask = ("BOOL", [256], bytes(index % 2 for index in range(256)))
    tensors = {name: ("F32", [256], struct.pack("<f", 3.0) * 256), "mask": mask}
    found = judged(shared_docker_sandbox, source, read_weights(state_file(tensors)))
    assert found.passed, found.message


def test_a_file_of_another_dtype_is_rounded_to_the_models_for_all(shared_docker_sandbox: Sandbox) -> None:
    """The candidate keeps more digits of a parameter than the reference has, and may."""
    half = OP.replace("torch.rand(256) + 0.5)", "(torch.rand(256) + 0.5).bfloat16())")
    wide = candidate("torch.rand(256) + 0.5)", "(torch.rand(256) + 0.5).bfloat16().float())")
    task = task_from_source(half, name="op")
    mask = ("BOOL", [256], b"\1" * 256)
    weights = read_weights(state_file({"scale": ("F32", [256], struct.pack("<f", 1.2345678) * 256), "mask": mask}))
    found = evaluate(
        task, wide, sandbox=shared_docker_sandbox, platform=load_platform("cpu"), effort=EFFORT, weights=weights
    )
    assert found.passed, found.message
    assert families(found)[GIVEN_WEIGHTS]
