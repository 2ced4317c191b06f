"""Platform `opencl`: attacks get their verdicts, honest programs pass in every form that pyopencl has for them."""

from pathlib import Path

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tasks.load import load_task
from tasks.outcomes import Verdict
from tests.platforms.kits import OP
from tests.platforms.opencl_candidates import ATTACKS, GAINS_NOTHING, HONEST, TAGGED
from tests.platforms.screened import exemplars_of

EFFORT = Effort(memory_mb=3072, measure_budget_s=0.3, baselines=("eager",), call_timeout_s=5.0)

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("opencl")]  # they share a container


def judged(sandbox: Sandbox, source: str, op: str = OP) -> Evaluation:
    task = task_from_source(op, name="op")
    return evaluate(task, source, sandbox=sandbox, platform=load_platform("opencl"), effort=EFFORT)


def test_there_are_as_many_attacks_and_honest_candidates_as_the_platform_needs() -> None:
    assert len(ATTACKS) >= 8
    assert len(HONEST) >= 6


@pytest.mark.usefixtures("every_core")  # two threads of PoCL's, of which one may go on
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gets_its_verdict_and_is_told_why(shared_opencl_sandbox: Sandbox, name: str) -> None:
    attack = ATTACKS[name]
    found = judged(shared_opencl_sandbox, attack.source)
    assert (found.verdict, attack.message in found.message) == (attack.verdict, True), (
        f"{found.message}\n{found.detail}"
    )
    assert found.speedup is None


def test_what_the_compiler_says_of_a_source_is_told_with_its_line(shared_opencl_sandbox: Sandbox) -> None:
    found = judged(shared_opencl_sandbox, ATTACKS["source that is no OpenCL C"].source)
    assert ".cl:4:12: use of undeclared identifier 'nonsense'" in found.detail


@pytest.mark.parametrize("name", TAGGED)
def test_what_is_right_and_something_else_has_a_tag_that_says_so(shared_opencl_sandbox: Sandbox, name: str) -> None:
    source, tag = TAGGED[name]
    found = judged(shared_opencl_sandbox, source)
    assert found.verdict == Verdict.PASSED, f"{found.message}\n{found.detail}"
    assert tag in found.tags, found.profile["time_by_file"]


@pytest.mark.parametrize("name", GAINS_NOTHING)
def test_what_a_process_does_beside_its_kernels_gains_nothing(shared_opencl_sandbox: Sandbox, name: str) -> None:
    found = judged(shared_opencl_sandbox, GAINS_NOTHING[name])
    assert found.verdict == Verdict.PASSED, f"{found.message}\n{found.detail}"
    assert found.speedup is not None and found.speedup["eager"].low < 1.05


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_candidate_passes(shared_opencl_sandbox: Sandbox, name: str) -> None:
    honest = HONEST[name]
    found = judged(shared_opencl_sandbox, honest.source, honest.op)
    assert found.verdict == Verdict.PASSED, f"{found.message}\n{found.detail}"
    versions = found.provenance["versions"]
    assert versions["pocl"] and versions["pyopencl"]


@pytest.mark.parametrize("path", exemplars_of("opencl"), ids=lambda path: path.stem.removesuffix("_task"))
def test_an_exemplar_passes_and_is_faster(shared_opencl_sandbox: Sandbox, path: Path) -> None:
    source = path.with_name(path.name.replace("_task", "")).read_text()
    effort = Effort(wall_s=120, memory_mb=4096, measure_budget_s=2.0, baselines=("eager",), trial=True)
    platform = load_platform("opencl")
    found = evaluate(load_task(path), source, sandbox=shared_opencl_sandbox, platform=platform, effort=effort)
    assert found.verdict == Verdict.PASSED, f"{found.message}\n{found.detail}"
    assert found.speedup is not None and "custom_kernel" in found.tags
    assert found.speedup["eager"].value > 1.0 or "noisy" in found.tags
