"""What the screening of whole HIP candidates says: honest ones are screened, faults and cheats are told and refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from evaluator.referee.protocol.gpu_checks import AMD_ARCHITECTURES
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tests.platforms.hip.candidates import ATTACKS, HONEST, HOSTS_FUNCTION, MATRIX_CORES, Case
from tests.platforms.screened import EFFORT, exemplars_of, see, see_exemplar

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("hip_screening")]
FOR_ONE = replace(EFFORT, architectures=("gfx90a",))


def judged(sandbox: Sandbox, case: Case, effort: Effort = FOR_ONE) -> Evaluation:
    task = task_from_source(case.op, name="case")
    return evaluate(task, case.candidate, sandbox=sandbox, platform=load_platform("hip"), effort=effort)


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_candidate_is_screened(shared_hip_sandbox: Sandbox, name: str) -> None:
    see(HONEST[name], judged(shared_hip_sandbox, HONEST[name]))


@pytest.mark.parametrize("name", ATTACKS)
def test_a_fault_or_a_cheat_is_told(shared_hip_sandbox: Sandbox, name: str) -> None:
    see(ATTACKS[name], judged(shared_hip_sandbox, ATTACKS[name]))


@pytest.mark.parametrize("path", exemplars_of("hip"), ids=lambda path: path.stem)
def test_an_exemplar_is_screened(shared_hip_sandbox: Sandbox, path: Path) -> None:
    see_exemplar(shared_hip_sandbox, path, "hip", FOR_ONE)


def test_what_cannot_be_emulated_is_compiled_only_and_the_line_is_told(shared_hip_sandbox: Sandbox) -> None:
    see(MATRIX_CORES, judged(shared_hip_sandbox, MATRIX_CORES))


def test_a_kernel_that_only_a_hosts_compiler_takes_is_refused_with_line_and_caret(shared_hip_sandbox: Sandbox) -> None:
    found = judged(shared_hip_sandbox, HOSTS_FUNCTION)
    see(HOSTS_FUNCTION, found)
    assert "cuda_sources:9:" in found.detail and "^" in found.detail


def test_the_usual_architectures_are_compiled_for_where_none_of_amd_is_asked_for(shared_hip_sandbox: Sandbox) -> None:
    found = judged(shared_hip_sandbox, HONEST["one element a thread"], replace(EFFORT, architectures=("sm_90a",)))
    compiled = found.profile["screening"]["compiled"]
    assert [each["architecture"] for each in compiled] == list(AMD_ARCHITECTURES)
    assert all(each["kernels"][0]["vgprs"] > 0 and each["sass"]["all"] > 5 for each in compiled)
    shown = load_platform("hip").profile_text(dict(found.profile))
    assert "gfx942: k: " in shown and " VGPRs, " in shown and "occupancy " in shown


def test_an_architecture_that_clang_does_not_know_is_no_fault_of_the_candidates(shared_hip_sandbox: Sandbox) -> None:
    found = judged(shared_hip_sandbox, HONEST["one element a thread"], replace(EFFORT, architectures=("gfx999",)))
    assert found.verdict == "screened" and "compiled" not in found.tags
    assert "invalid target ID 'gfx999'" in found.profile["screening"]["missing"]["compiled"]
