"""Platforms `cuda` and `triton` on a GPU: what every platform keeps, attacks and honest candidates; skipped without."""

import shutil

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from evaluator.platforms.gpu.platform import GpuPlatform
from evaluator.profile import profile_candidate
from evaluator.referee.platforms.gpu.profiling.counters import QUESTIONS
from evaluator.referee.platforms.gpu.profiling.sanitizer import TOOLS
from sandbox.process.sandbox import ProcessSandbox
from tasks.build import task_from_source
from tasks.outcomes import TAGS, Verdict
from tests.platforms.gpu.attacks import ATTACKS, GAINS, PLAIN
from tests.platforms.gpu.honest import HONEST
from tests.platforms.gpu.ops import LARGE
from tests.platforms.kits import KITS, OP

NAMES = ["cuda", "triton"]
EFFORT = Effort(measure_budget_s=2.0, baselines=("eager",), build_timeout_s=240.0)


def judged(sandbox: ProcessSandbox, name: str, source: str, op: str = OP, against: str | None = None) -> Evaluation:
    task = task_from_source(op, name="scaled_relu")
    platform = load_platform(name)
    assert isinstance(platform, GpuPlatform)
    return evaluate(task, source, sandbox=sandbox, platform=platform, effort=EFFORT, champion_source=against)


@pytest.mark.gpu
@pytest.mark.exclusive
@pytest.mark.parametrize("name", NAMES)
def test_a_right_candidate_is_timed(process_sandbox: ProcessSandbox, name: str) -> None:
    found = judged(process_sandbox, name, KITS[name].right)
    assert found.verdict == Verdict.PASSED, f"{found.message}\n{found.detail}"
    assert found.speedup is not None and found.latency_ms["candidate"].median > 0
    assert set(found.tags) <= set(TAGS)
    assert found.provenance["device"]["gpu_uuid"].startswith("GPU-")
    assert found.profile["gpu"]["looks"] > 0


@pytest.mark.gpu
@pytest.mark.exclusive
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("wrong", Verdict.WRONG_OUTPUT), ("raises", Verdict.CRASHED), ("broken", Verdict.BUILD_FAILED)],
)
def test_others_are_refused(process_sandbox: ProcessSandbox, name: str, kind: str, verdict: Verdict) -> None:
    found = judged(process_sandbox, name, getattr(KITS[name], kind))
    assert found.verdict == verdict, f"{found.message}\n{found.detail}"


@pytest.mark.gpu
@pytest.mark.exclusive
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("which", [0, 1])
def test_cheats_of_the_kit_are_refused(process_sandbox: ProcessSandbox, name: str, which: int) -> None:
    found = judged(process_sandbox, name, list(KITS[name].cheats.values())[which])
    assert found.verdict in (Verdict.WRONG_OUTPUT, Verdict.INTEGRITY), f"{found.message}\n{found.detail}"


@pytest.mark.gpu
@pytest.mark.exclusive
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused(process_sandbox: ProcessSandbox, attack: str) -> None:
    tried = ATTACKS[attack]
    found = judged(process_sandbox, tried.platform, tried.source, tried.op)
    assert found.verdict in tried.verdicts, f"{found.verdict}: {found.message}\n{found.detail}"


@pytest.mark.gpu
@pytest.mark.exclusive
@pytest.mark.parametrize("candidate", HONEST)
def test_an_honest_candidate_passes(process_sandbox: ProcessSandbox, candidate: str) -> None:
    honest = HONEST[candidate]
    found = judged(process_sandbox, honest.platform, honest.source, honest.op)
    assert found.verdict == Verdict.PASSED, f"{found.message}\n{found.detail}"


@pytest.mark.gpu
@pytest.mark.exclusive
@pytest.mark.parametrize("name", GAINS)
def test_what_must_not_make_a_candidate_faster_does_not(process_sandbox: ProcessSandbox, name: str) -> None:
    gain = GAINS[name]
    found = judged(process_sandbox, "cuda", gain.tried, gain.op, gain.plain)
    assert found.verdict != Verdict.SANDBOX_ERROR, f"{found.message}\n{found.detail}"
    if found.speedup is not None:  # else it was refused
        assert found.champion is not None and found.champion.speedup is not None
        assert found.champion.speedup.value <= gain.at_most


@pytest.mark.gpu
@pytest.mark.exclusive
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sanitize", [False, True])
def test_a_candidate_is_profiled(process_sandbox: ProcessSandbox, name: str, sanitize: bool) -> None:
    task, platform = task_from_source(OP, name="scaled_relu"), load_platform(name)
    found = profile_candidate(
        task, KITS[name].right, sandbox=process_sandbox, platform=platform, effort=EFFORT, sanitize=sanitize
    )
    absent = found["absent"]
    assert found["kernels"]["kernels"][0]["registers_per_thread"] > 0, absent
    assert found["compiled"]["kernels"][0]["registers"] > 0, absent
    if shutil.which("ncu") and "ERR_NVGPUCTRPERM" not in absent.get("counters", ""):
        assert all(found["counters"][question] for question in QUESTIONS), absent
        assert found["counters"]["time_us"] > 0
    if sanitize and shutil.which("compute-sanitizer"):
        assert found["sanitizer"]["errors"] == [[tool, 0] for tool in TOOLS], found["sanitizer"]["findings"]


@pytest.mark.gpu
@pytest.mark.exclusive
def test_the_op_against_itself_is_a_tie(process_sandbox: ProcessSandbox) -> None:
    found = judged(process_sandbox, "cuda", PLAIN, LARGE)
    assert found.speedup is not None, f"{found.message}\n{found.detail}"
    assert abs(found.speedup["eager"].value - 1) < 0.03
