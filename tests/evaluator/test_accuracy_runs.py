"""Accuracy in whole evaluations: what tasks declare, their other shapes, other rules, provenance."""

from dataclasses import replace

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation, shape_group_of
from evaluator.platforms import load_platform
from evaluator.referee.protocol.input_families import NON_FINITE
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tasks.outcomes import Verdict, is_ranked

EFFORT = Effort(wall_s=120, memory_mb=4096, measure_budget_s=0.2, baselines=("eager",), rules=("kernelbench",))
pytestmark = pytest.mark.docker

OP = """
import torch
import torch.nn as nn
{declared}

class Model(nn.Module):
    def forward(self, x):
        return {expression}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {expression}
"""


def judged(
    sandbox: Sandbox,
    reference: str,
    candidate: str,
    *,
    declared: str = "",
    inputs: str = "torch.rand(64, 256) + 0.1",
    effort: Effort = EFFORT,
) -> Evaluation:
    task = task_from_source(OP.format(declared=declared, expression=reference, inputs=inputs), name="op")
    source = CANDIDATE.format(expression=candidate)
    return evaluate(task, source, sandbox=sandbox, platform=load_platform("cpu"), effort=effort)


def notes(found: Evaluation) -> dict[str, str]:
    return {check.inputs: check.note for check in found.correctness.checks}


ROUGH = "torch.nn.functional.gelu(x, approximate='tanh')"


def test_a_declared_tolerance_decides_and_the_report_says_so(shared_docker_sandbox: Sandbox) -> None:
    refused = judged(shared_docker_sandbox, "torch.nn.functional.gelu(x)", ROUGH)
    assert (refused.verdict, refused.code) == (Verdict.WRONG_OUTPUT, "values")
    assert refused.correctness.tolerance["floors"] == {"float32": 2e-6}
    passed = judged(
        shared_docker_sandbox, "torch.nn.functional.gelu(x)", ROUGH, declared='TOLERANCE = {"float32": 1e-3}'
    )
    assert passed.verdict is Verdict.PASSED, passed.message
    assert passed.correctness.tolerance["declared"] == {"float32": 1e-3}
    assert passed.correctness.tolerance["kind"] == "elementwise"


def test_who_is_wrong_on_nan_alone_hears_that_finite_inputs_may_be_asked_for(shared_docker_sandbox: Sandbox) -> None:
    drops_nan = "torch.where(x > 0, x, 0.0)"
    refused = judged(shared_docker_sandbox, "torch.relu(x)", drops_nan, inputs="torch.randn(64, 256)")
    assert (refused.verdict, refused.code) == (Verdict.WRONG_OUTPUT, "nan")
    assert "right on finite inputs (enough only where --domain finite was asked for)" in refused.message
    assert [check.inputs for check in refused.correctness.checks if not check.passed] == [NON_FINITE]
    passed = judged(
        shared_docker_sandbox, "torch.relu(x)", drops_nan, inputs="torch.randn(64, 256)", declared='DOMAIN = "finite"'
    )
    assert passed.verdict is Verdict.PASSED, passed.message


def test_who_is_wrong_on_other_inputs_too_hears_of_those(shared_docker_sandbox: Sandbox) -> None:
    """The integers of this op come after NaN, and the candidate does not take large ones."""
    inputs = "torch.randn(64, 256), torch.randint(0, 5, (64, 1))"
    names = {"def forward(self, x)": "def forward(self, x, n)"}
    op, candidate = (
        text.replace(*next(iter(names.items())))
        for text in (
            OP.format(declared="", expression="torch.relu(x) * n", inputs=inputs),
            CANDIDATE.format(expression="torch.where(x > 0, x, 0.0) * n.to(torch.int8)"),
        )
    )
    task = task_from_source(op, name="op")
    found = evaluate(task, candidate, sandbox=shared_docker_sandbox, platform=load_platform("cpu"), effort=EFFORT)
    assert found.verdict is Verdict.WRONG_OUTPUT
    assert "large integers" in found.message and "finite" not in found.message


def test_inputs_outside_the_declared_domain_are_not_used_and_the_report_says_so(shared_docker_sandbox: Sandbox) -> None:
    inputs = "torch.rand(64, 256)"
    refused = judged(shared_docker_sandbox, "x * 0.3", "x.clamp(0, 1) * 0.3", inputs=inputs)
    assert refused.verdict is Verdict.WRONG_OUTPUT
    passed = judged(shared_docker_sandbox, "x * 0.3", "x.clamp(0, 1) * 0.3", inputs=inputs, declared='DOMAIN = "unit"')
    assert passed.verdict is Verdict.PASSED, passed.message
    skipped = {family for family, note in notes(passed).items() if "declared domain (unit)" in note}
    left_out = {"sign flipped", "scaled up", "large last elements", "one large element", "NaN and Inf"}
    assert skipped == left_out | {"negative where the generator gives none", "moved far from zero"}
    assert "correct on 9 input families" in passed.message


GROUPS = """
def get_input_groups():
    return [[torch.rand(rows, 256)] for rows in (1, 7, 64, 300)]
"""


def test_other_shapes_of_the_task_are_checked(shared_docker_sandbox: Sandbox) -> None:
    passed = judged(shared_docker_sandbox, "x.sum(0)", "x.flip(0).sum(0)", declared=GROUPS)
    assert passed.verdict is Verdict.PASSED, passed.message
    assert [family for family in notes(passed) if family.startswith("shape group")] == [
        f"shape group {number}" for number in range(4)
    ]
    refused = judged(shared_docker_sandbox, "x.sum(0)", "x[:64].sum(0)", declared=GROUPS)
    assert (refused.verdict, refused.code) == (Verdict.WRONG_OUTPUT, "values")
    assert "shape group 3" in refused.message


def test_inputs_of_a_shape_group_can_be_the_ones_that_are_timed(shared_docker_sandbox: Sandbox) -> None:
    wide = "def get_input_groups():\n    return [[torch.rand(8, 256)], [torch.rand(4096, 256)]]"
    effort = replace(EFFORT, shape_group=1)
    found = judged(shared_docker_sandbox, "x.sum(0)", "x.flip(0).sum(0)", declared=wide, effort=effort)
    assert found.passed, found.message
    assert "other_inputs" in found.tags and not is_ranked(found.tags)
    assert shape_group_of(found.to_json()) == 1
    own = judged(shared_docker_sandbox, "x.sum(0)", "x.flip(0).sum(0)", declared=wide)
    assert "other_inputs" not in own.tags and shape_group_of(own.to_json()) is None
    assert found.roofline is not None and own.roofline is not None
    assert found.roofline.limit_ms > 10 * own.roofline.limit_ms  # 4,096 rows, not 64
    only_many_rows = "x.sum(0) if len(x) > 1000 else x[0] * 1.0"
    refused = judged(shared_docker_sandbox, "x.sum(0)", only_many_rows, declared=wide, effort=effort)
    assert (refused.verdict, refused.code) == (Verdict.WRONG_OUTPUT, "values"), "its other inputs are checked"
    none = judged(shared_docker_sandbox, "x.sum(0)", "x.sum(0)", declared=wide, effort=replace(EFFORT, shape_group=2))
    assert none.verdict is Verdict.TASK_INVALID and "there is no shape group 2" in none.message


def test_of_many_shapes_some_are_chosen_in_secret_and_too_large_ones_left_out(shared_docker_sandbox: Sandbox) -> None:
    many = "def get_input_groups():\n    return [[torch.rand(rows, 8)] for rows in range(1, 31)]"
    found = judged(shared_docker_sandbox, "x.sum(0)", "x.sum(0)", declared=many)
    assert sum(family.startswith("shape group") for family in notes(found)) == 8
    huge = "def get_input_groups():\n    return [[torch.rand(4, 8)], [torch.rand(180, 2**20)]]"
    small = replace(EFFORT, memory_mb=2048)  # a third of it may be inputs
    found = judged(shared_docker_sandbox, "x[:4].sum(0)", "x[:4].sum(0)", declared=huge, effort=small)
    assert found.verdict is Verdict.PASSED, found.message
    assert "too large" in notes(found).get("shape group 1", ""), (found.message, notes(found))


def test_a_task_whose_groups_cannot_be_made_is_invalid(shared_docker_sandbox: Sandbox) -> None:
    found = judged(shared_docker_sandbox, "x.sum(0)", "x.sum(0)", declared="def get_input_groups():\n    return 7")
    assert found.verdict is Verdict.TASK_INVALID
    assert "get_input_groups" in found.message


def test_kernelbenchs_rule_is_reported_and_changes_nothing(shared_docker_sandbox: Sandbox) -> None:
    half = "(x.half().float() * 1e-3)"
    found = judged(shared_docker_sandbox, "x * 1e-3", half)
    assert (found.verdict, found.code) == (Verdict.WRONG_OUTPUT, "values")
    assert found.correctness.kernelbench is not None
    assert found.correctness.kernelbench["passed"] is True
    assert Evaluation.from_json(found.to_json()) == found
    assert (
        judged(shared_docker_sandbox, "x * 2", "x + x", effort=replace(EFFORT, rules=())).correctness.kernelbench
        is None
    )


def test_an_expanded_input_is_changed_like_any_other(shared_docker_sandbox: Sandbox) -> None:
    inputs = "torch.randn(1, 256).expand(64, 256)"
    found = judged(shared_docker_sandbox, "x * 2", "x + x", inputs=inputs)
    assert found.verdict is Verdict.PASSED, found.message


def test_provenance_has_what_it_takes_to_repeat_an_evaluation(docker_sandbox: Sandbox) -> None:
    found = judged(docker_sandbox, "x * 2", "x + x").provenance
    assert found["versions"]["torch"].startswith("2.")
    assert "g++" in found["versions"]["compiler"]
    assert "jemalloc" in found["versions"]["allocator"]
    assert found["versions"]["kernel"]
    assert found["cores_used"]
    assert found["image_digest"].startswith("sha256:")
    assert len(found["harness"]) == len(found["candidate"]) == len(found["task"]["hash"]) == 64
    assert len(bytes.fromhex(found["seed"])) == 16
    assert found["settings"]["measure_budget_s"] == 0.2
    assert found["settings"]["rules"] == ("kernelbench",)
    assert {"microcode", "flags", "name"} <= set(found["device"])
    assert "others_cores_busy" in found


SCALED = """
import torch
import torch.nn as nn


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(256))

    def forward(self, x):
        {forward}
"""
OF_SCALED = """

def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
"""
ONLY_POSITIVE = {
    "NaN": "return x * self.scale.log() + self.scale.sqrt()",
    "error": "return torch.poisson(self.scale) * 0.0 + x",
    "end": "return x if bool((self.scale > 0).all()) else __import__('os')._exit(3)",
}


@pytest.mark.parametrize("forward", ONLY_POSITIVE.values(), ids=ONLY_POSITIVE)
def test_weights_stay_positive_where_the_reference_takes_no_others(
    forward: str, shared_docker_sandbox: Sandbox
) -> None:
    task = task_from_source(SCALED.format(name="Model", forward=forward) + OF_SCALED, name="op")
    source = SCALED.format(name="ModelNew", forward=forward)
    found = evaluate(task, source, sandbox=shared_docker_sandbox, platform=load_platform("cpu"), effort=EFFORT)
    assert found.verdict is Verdict.PASSED, found.message


def test_weights_are_negative_where_the_reference_takes_them(shared_docker_sandbox: Sandbox) -> None:
    task = task_from_source(SCALED.format(name="Model", forward="return x * self.scale") + OF_SCALED, name="op")
    source = SCALED.format(name="ModelNew", forward="return x * self.scale.abs()")
    found = evaluate(task, source, sandbox=shared_docker_sandbox, platform=load_platform("cpu"), effort=EFFORT)
    assert (found.verdict, found.code) == (Verdict.WRONG_OUTPUT, "values"), found.message
