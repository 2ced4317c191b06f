"""Correct candidates of many styles: none is refused, and slow ones are reported as slow."""

from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.build_cache import BuildCache, candidate_key
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


ALONE = {"compiled_by_torch": 2.0, "idle_threads": 2.0, "spinning_pool": 2.0, "slow_but_right": 0.3}
"""Whose tags say how fast it is or how evenly: seconds of measuring."""
ELSEWHERE = {*ALONE, "load_inline", "jit_library"}
"""Evaluated by tests of their own below, which look at more."""


@pytest.mark.parametrize(
    "path", [path for path in sorted(HONEST.glob("*.py")) if path.stem not in ELSEWHERE], ids=lambda path: path.stem
)
def test_honest_candidate_passes(path: Path, shared_docker_sandbox: Sandbox, request: pytest.FixtureRequest) -> None:
    if "#pragma omp" in path.read_text():
        request.getfixturevalue("every_core")
    found = judged(path, shared_docker_sandbox)
    check_passed(path, found)
    if path.stem == "optimizer_step":  # an input that it changes becomes NaN
        [check] = [check for check in found.correctness.checks if check.inputs == NEGATIVE]
        assert "the reference gives NaN for them" in check.note


@pytest.mark.exclusive
@pytest.mark.parametrize("style", ALONE)
def test_honest_candidate_passes_and_its_tags_say_how_fast_it_is(style: str, docker_sandbox: Sandbox) -> None:
    path = HONEST / f"{style}.py"
    found = judged(path, docker_sandbox, replace(EFFORT, measure_budget_s=ALONE[style]))
    check_passed(path, found)
    if style == "slow_but_right":
        assert "slower" in found.tags
    else:
        assert "uneven" not in found.tags, "for threads or modules of its own alone"


def check_passed(path: Path, found: Evaluation) -> None:
    """It is right, its figures are in order, and it is called what it is."""
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


def test_there_are_many_styles() -> None:
    assert len(list(HONEST.glob("*.py"))) >= 20


def test_the_process_sandbox_gives_the_same_verdict_and_says_that_it_is_no_boundary(process_sandbox: Sandbox) -> None:
    found = judged(HONEST / "jit_library.py", process_sandbox)
    assert found.verdict is Verdict.PASSED, found.detail
    assert found.provenance["security_boundary"] is False


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


def test_a_slow_build_is_paid_for_once_and_no_other_candidate_gets_it(docker_sandbox: Sandbox, tmp_path: Path) -> None:
    op, candidate = (HONEST / "load_inline.py").read_text().split("# --- candidate ---\n")
    task, cache = task_from_source(op, name="op"), BuildCache(tmp_path)
    cpu = load_platform("cpu")
    first, second = (
        evaluate(task, candidate, sandbox=docker_sandbox, platform=cpu, effort=EFFORT, cache=cache) for _ in range(2)
    )
    check_passed(HONEST / "load_inline.py", first)
    assert second.passed, second.detail
    assert second.cost_s["build"] < first.cost_s["build"] / 2
    (kept,) = tmp_path.iterdir()
    given = (task, candidate), (task, candidate + "\n"), (task_from_source(op + "\n", name="op"), candidate)
    keys = [candidate_key(*each, docker_sandbox.describe(), cpu.device(0)) for each in given]
    assert [bool(cache.get(key)) for key in keys] == [True, False, False], kept


def test_torch_compile_is_measured_beside_eager(docker_sandbox: Sandbox) -> None:
    effort = Effort(wall_s=240, memory_mb=6144, measure_budget_s=1)
    found = judged(HONEST / "jit_library.py", docker_sandbox, effort)
    check_passed(HONEST / "jit_library.py", found)
    assert found.speedup is not None
    assert set(found.speedup) == {"eager", "compile"}, found.profile["absent"]
    assert set(found.latency_ms) == {"eager", "compile", "candidate"}
