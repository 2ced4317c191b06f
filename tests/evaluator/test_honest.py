"""Correct candidates of many styles: none is refused, and slow ones are reported as slow."""

from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.build_cache import BuildCache
from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from evaluator.referee.correctness.findings import SKIPPED
from evaluator.referee.protocol.input_families import ENDS, FLIPPED, GENERATED, GROUP, LOW_BITS, NEGATIVE, UP
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tasks.outcomes import Verdict

HONEST = Path(__file__).parents[1] / "honest"
EFFORT = Effort(wall_s=120, memory_mb=4096, measure_budget_s=0.3, baselines=("eager",))
pytestmark = pytest.mark.docker


def judged(path: Path, sandbox: Sandbox, effort: Effort = EFFORT) -> Evaluation:
    op, candidate = path.read_text().split("# --- candidate ---\n")
    task = task_from_source(op, name=path.stem)
    return evaluate(task, candidate, sandbox=sandbox, platform=load_platform("cpu"), effort=effort)


@pytest.mark.parametrize("path", sorted(HONEST.glob("*.py")), ids=lambda path: path.stem)
def test_honest_candidate_passes(path: Path, docker_sandbox: Sandbox) -> None:
    found = judged(path, docker_sandbox)
    assert found.verdict is Verdict.PASSED, f"{found.code}: {found.message}\n{found.detail}"
    assert found.speedup is not None
    eager = found.speedup["eager"]
    assert 0 < eager.low <= eager.value <= eager.high
    assert found.roofline is not None
    assert ("slower" in found.tags) == (eager.high < 1)
    kind = "custom_kernel" if "\n# tag: custom_kernel\n" in path.read_text() else "torch_only"
    assert kind in found.tags, found.profile["time_by_file"]
    assert Evaluation.from_json(found.to_json()) == found
    # Nobody who knows that he is timed gets by with less than what was checked before.
    told = [check.inputs for check in found.correctness.checks if not check.note.startswith(SKIPPED)]
    others = {family for family in told if not family.startswith((GENERATED, GROUP))}
    changes_state = bool(found.correctness.state and found.correctness.state["changed_by_calls"])
    assert changes_state or set(found.correctness.spot_checks) == others


@pytest.mark.exclusive
@pytest.mark.parametrize("style", ["idle_threads", "spinning_pool"])
def test_threads_of_its_own_make_no_candidate_uneven(style: str, docker_sandbox: Sandbox) -> None:
    found = judged(HONEST / f"{style}.py", docker_sandbox, replace(EFFORT, measure_budget_s=2.0))
    assert found.verdict is Verdict.PASSED, found.detail
    assert "uneven" not in found.tags


def test_there_are_many_styles() -> None:
    assert len(list(HONEST.glob("*.py"))) >= 20


@pytest.mark.exclusive
def test_a_slow_candidate_is_called_slower(docker_sandbox: Sandbox) -> None:
    assert "slower" in judged(HONEST / "slow_but_right.py", docker_sandbox).tags


def test_the_process_sandbox_gives_the_same_verdict_and_says_that_it_is_no_boundary(process_sandbox: Sandbox) -> None:
    found = judged(HONEST / "jit_library.py", process_sandbox)
    assert found.verdict is Verdict.PASSED, found.detail
    assert found.provenance["security_boundary"] is False


def test_nan_in_an_input_that_the_op_changes_says_that_the_op_is_not_for_negative_numbers(
    process_sandbox: Sandbox,
) -> None:
    found = judged(HONEST / "optimizer_step.py", process_sandbox)
    [check] = [check for check in found.correctness.checks if check.inputs == NEGATIVE]
    assert "the reference gives NaN for them" in check.note


MASKING = """import torch
import torch.nn as nn


class Model{new}(nn.Module):
    def forward(self, scores, mask):
        return torch.softmax(scores.masked_fill_(mask > 0.3, -torch.inf), dim=-1)
"""
ITS_INPUTS = """

def get_inputs():
    return [torch.randn(64, 128), torch.rand(64, 128)]


def get_init_inputs():
    return []
"""


def test_infinities_that_an_op_leaves_in_an_input_excuse_no_family_from_being_judged(process_sandbox: Sandbox) -> None:
    task = task_from_source(MASKING.format(new="") + ITS_INPUTS, name="masking")
    cpu = load_platform("cpu")
    found = evaluate(task, MASKING.format(new="New"), sandbox=process_sandbox, platform=cpu, effort=EFFORT)
    assert found.passed, found.detail
    skipped = {check.inputs: check.note for check in found.correctness.checks if "skipped" in check.note}
    assert {UP, FLIPPED, LOW_BITS, ENDS}.isdisjoint(skipped), skipped


def test_a_slow_build_is_paid_for_once(docker_sandbox: Sandbox, tmp_path: Path) -> None:
    op, candidate = (HONEST / "load_inline.py").read_text().split("# --- candidate ---\n")
    task, cache = task_from_source(op, name="op"), BuildCache(tmp_path)
    cpu = load_platform("cpu")
    first, second = (
        evaluate(task, candidate, sandbox=docker_sandbox, platform=cpu, effort=EFFORT, cache=cache) for _ in range(2)
    )
    assert first.passed and second.passed, first.detail + second.detail
    assert second.cost_s["build"] < first.cost_s["build"] / 2
    other = evaluate(task, candidate + "\n", sandbox=docker_sandbox, platform=cpu, effort=EFFORT, cache=cache)
    assert other.cost_s["build"] > 2 * second.cost_s["build"], "another candidate must not get what this one has built"


def test_torch_compile_is_measured_beside_eager(docker_sandbox: Sandbox) -> None:
    effort = Effort(wall_s=240, memory_mb=6144, measure_budget_s=1)
    found = judged(HONEST / "jit_library.py", docker_sandbox, effort)
    assert found.verdict is Verdict.PASSED, found.detail
    assert found.speedup is not None
    assert set(found.speedup) == {"eager", "compile"}, found.profile["absent"]
    assert set(found.latency_ms) == {"eager", "compile", "candidate"}
