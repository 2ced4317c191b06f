"""What every platform keeps: one suite for all of them, in a real sandbox, with candidates of every kind."""

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import PLATFORM_NAMES, SCREENED, Platform, load_platform, screening_platform
from evaluator.profile import profile_candidate
from evaluator.task_check import check_task
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tasks.outcomes import TAGS, Verdict, candidate_hash, is_ranked
from tests.platforms.kits import CPU, KITS, OP
from tests.support.sandboxes import SandboxOf

TASK = task_from_source(OP, name="scaled_relu")
TRIAL = Effort(memory_mb=3072, measure_budget_s=2.0, baselines=("eager",), trial=True)
EFFORT = Effort(memory_mb=3072, measure_budget_s=1.0, baselines=("eager",), build_timeout_s=240.0)


def platform_of(name: str) -> Platform:
    """The platform as it is without a GPU, whatever this host has: `tests/platforms/gpu` is about those with one."""
    return screening_platform(name) if name in SCREENED else load_platform(name)


TIMED = [name for name in PLATFORM_NAMES if platform_of(name).timed != "nothing"]
SCREENING = [name for name in PLATFORM_NAMES if name not in TIMED]


def grouped(names: Iterable[str], *more: str) -> list[object]:
    """Platforms as parameters: the tests of each, here and elsewhere, share its containers."""
    shared = {"arm64": "riscv"}
    return [pytest.param(name, *more, marks=pytest.mark.xdist_group(shared.get(name, name))) for name in names]


PLATFORMS = grouped(PLATFORM_NAMES)
CHEATS = [each for name, kit in KITS.items() for cheat in kit.cheats for each in grouped([name], cheat)]

pytestmark = pytest.mark.docker


@pytest.fixture
def shared_of(
    shared_docker_sandbox: Sandbox,
    shared_riscv_sandbox: Sandbox,
    shared_opencl_sandbox: Sandbox,
    shared_cuda_sandbox: Sandbox,
    shared_hip_sandbox: Sandbox,
) -> SandboxOf:
    """By the platform's name: one container for many evaluations."""
    ones = {
        **dict.fromkeys(("riscv", "arm64"), shared_riscv_sandbox),
        "opencl": shared_opencl_sandbox,
        "cuda": shared_cuda_sandbox,
        "hip": shared_hip_sandbox,
    }
    return lambda platform: ones.get(platform, shared_docker_sandbox)


def judged(sandbox: Sandbox, platform: str, source: str) -> Evaluation:
    return evaluate(TASK, source, sandbox=sandbox, platform=platform_of(platform), effort=EFFORT)


def test_there_is_a_kit_for_each_platform() -> None:
    assert set(KITS) == set(PLATFORM_NAMES)


def test_an_unknown_platform_is_refused_by_name() -> None:
    with pytest.raises(KeyError, match=r"unknown 'abacus'.*cpu, simulated, riscv, arm64, cuda, opencl, triton, hip"):
        load_platform("abacus")


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_platform_describes_its_device_and_has_texts_for_prompts(name: str) -> None:
    platform = platform_of(name)
    device = platform.device()
    assert platform.name == device.platform == name
    assert (device.index, platform.device(1).index) == (0, 1)
    assert len(set(platform.exclusive_resources(0))) == len(platform.exclusive_resources(0))
    assert platform.requirements_text() and platform.image().tag.startswith("kernelwright-")
    assert device.name and device.facts and device.describe().startswith(device.name)
    assert platform.language and platform.timed in ("wall", "cycles", "instructions", "nothing")
    assert ("eager" in platform.baselines) == (platform.timed != "nothing")
    texts = platform.prompts()
    assert (texts.folder / texts.rules).read_text().strip()
    for part in ("", "_task"):
        source = (texts.folder / "exemplars" / f"{texts.default_category}{part}.py").read_text()
        assert "class Model" in source


@pytest.mark.parametrize("name", grouped(SCREENING))
def test_where_nothing_is_timed_a_right_candidate_is_screened_and_has_no_figure(
    shared_of: SandboxOf, name: str
) -> None:
    found = judged(shared_of(name), name, KITS[name].right)
    assert found.verdict == Verdict.SCREENED, found.message
    assert found.speedup is None and not found.latency_ms and found.roofline is None and not found.passed
    assert {"executed", "race_free", "in_bounds"} <= set(found.tags) <= set(TAGS)
    assert found.provenance["device"]["platform"] == name
    told = json.loads(json.dumps(found.to_json()))
    assert json.loads(json.dumps(Evaluation.from_json(told).to_json())) == told
    lines = platform_of(name).profile_text(dict(found.profile)).splitlines()
    assert 0 < len(lines) <= 60 and max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", grouped(TIMED))
def test_a_right_candidate_passes_and_says_where_it_was_measured(shared_of: SandboxOf, name: str) -> None:
    found = judged(shared_of(name), name, KITS[name].right)
    assert found.verdict == Verdict.PASSED, found.message
    assert found.speedup is not None and found.speedup.keys() == {"eager"}
    assert all(found.latency_ms[variant].median > 0 for variant in ("eager", "candidate"))
    assert set(found.tags) <= set(TAGS)
    assert {"cycles", "instructions"} & set(found.tags) == {platform_of(name).timed} - {"wall"}
    assert found.provenance["device"]["platform"] == name
    lines = platform_of(name).profile_text(dict(found.profile)).splitlines()
    assert 0 < len(lines) <= 60 and max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_wrong_candidate_is_refused_with_the_values_that_differ(shared_of: SandboxOf, name: str) -> None:
    found = judged(shared_of(name), name, KITS[name].wrong)
    assert (found.verdict, found.code) == (Verdict.WRONG_OUTPUT, "values"), found.message
    assert found.speedup is None


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_candidate_that_raises_is_told_what_it_raised(shared_of: SandboxOf, name: str) -> None:
    found = judged(shared_of(name), name, KITS[name].raises)
    assert found.verdict == Verdict.CRASHED
    assert "no such" in found.message


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_candidate_that_is_no_python_does_not_build(shared_of: SandboxOf, name: str) -> None:
    found = judged(shared_of(name), name, KITS[name].broken)
    assert found.verdict == Verdict.BUILD_FAILED
    assert "SyntaxError" in found.message


def tried(sandbox: Sandbox, platform: str, source: str, champion: str) -> Evaluation:
    """The evaluation of a candidate in a trial against another one."""
    return evaluate(
        TASK, source, sandbox=sandbox, platform=platform_of(platform), effort=TRIAL, champion_source=champion
    )


@pytest.mark.exclusive
@pytest.mark.parametrize("name", grouped(TIMED))
def test_the_faster_of_two_candidates_is_found_from_either_side(shared_of: SandboxOf, name: str) -> None:
    right, slower = KITS[name].right, KITS[name].slower
    for source, champion, decision in ((right, slower, "better"), (slower, right, "worse")):
        found = tried(shared_of(name), name, source, champion)
        assert found.verdict == Verdict.PASSED, found.message
        assert found.champion is not None and found.champion.speedup is not None
        assert (found.champion.decision, found.champion.candidate) == (decision, candidate_hash(champion))
        assert "trial" in found.tags and not is_ranked(found.tags)
        assert Evaluation.from_json(json.loads(json.dumps(found.to_json()))).champion == found.champion


@pytest.mark.parametrize("name", grouped(TIMED))
@pytest.mark.parametrize("fault", ["raises", "broken"])
def test_a_champion_that_fails_is_no_fault_of_the_candidate(shared_of: SandboxOf, name: str, fault: str) -> None:
    found = tried(shared_of(name), name, KITS[name].right, getattr(KITS[name], fault))
    assert found.verdict == Verdict.PASSED, found.message
    assert found.speedup is not None and found.latency_ms.keys() == {"eager", "candidate"}
    assert found.champion is not None
    assert (found.champion.decision, found.champion.speedup) == ("open", None)
    assert found.champion.absent


def test_a_champion_that_never_ends_is_stopped_and_forgotten(shared_docker_sandbox: Sandbox) -> None:
    """Its processes would else run beside the candidate's calls, which is what candidates are refused for."""
    effort = replace(TRIAL, build_timeout_s=3.0)
    cpu = platform_of("cpu")
    found = evaluate(
        TASK,
        CPU.right,
        sandbox=shared_docker_sandbox,
        platform=cpu,
        effort=effort,
        champion_source="while True:\n    pass\n",
    )
    assert found.verdict == Verdict.PASSED, found.message
    assert found.champion is not None and "no answer within 3 s" in found.champion.absent


OP_OF_MEGABYTES = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.randn(640, 1024)]


def get_init_inputs():
    return []
"""


def test_an_output_of_megabytes_is_looked_at_in_pieces(shared_docker_sandbox: Sandbox) -> None:
    source = """
class ModelNew:
    def __call__(self, x):
        return x + 1.0
"""
    task, platform = task_from_source(OP_OF_MEGABYTES, name="large"), platform_of("simulated")
    found = evaluate(task, source, sandbox=shared_docker_sandbox, platform=platform, effort=EFFORT)
    assert found.verdict == Verdict.PASSED, found.message


TWO_OUTPUTS = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1, x * 2


def get_inputs():
    return [torch.randn(16, 32)]


def get_init_inputs():
    return []
"""


def test_two_outputs_of_a_program_do_not_lie_at_the_same_place(shared_docker_sandbox: Sandbox) -> None:
    source = """
import array_machine


class ModelNew:
    def __call__(self, x):
        return x + 1.0, x * 2.0
"""
    task, platform = task_from_source(TWO_OUTPUTS, name="two"), platform_of("simulated")
    found = evaluate(task, source, sandbox=shared_docker_sandbox, platform=platform, effort=EFFORT)
    assert found.verdict == Verdict.PASSED, found.message


def test_equal_counts_are_alike_at_once(shared_docker_sandbox: Sandbox) -> None:
    found = tried(shared_docker_sandbox, "simulated", KITS["simulated"].right, KITS["simulated"].right)
    assert found.champion is not None and found.champion.speedup is not None
    assert (found.champion.decision, found.champion.speedup.low, found.champion.speedup.high) == ("alike", 1.0, 1.0)


@pytest.mark.usefixtures("every_core")
@pytest.mark.parametrize(("name", "cheat"), CHEATS)
def test_a_candidate_that_cheats_does_not_pass(shared_of: SandboxOf, name: str, cheat: str) -> None:
    found = judged(shared_of(name), name, KITS[name].cheats[cheat])
    assert found.verdict in (Verdict.WRONG_OUTPUT, Verdict.CRASHED, Verdict.INTEGRITY), found.message


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_task_is_checked_and_a_candidate_profiled(shared_of: SandboxOf, name: str) -> None:
    platform = platform_of(name)
    assert check_task(TASK, sandbox=shared_of(name), platform=platform, effort=EFFORT).ok
    found = profile_candidate(
        TASK, KITS[name].right, sandbox=shared_of(name), platform=platform, effort=EFFORT, budget_s=5.0
    )
    assert "profile" not in found["absent"]
    assert platform.profile_text({"detail": found}).strip()


def test_cycles_are_the_same_each_time_and_the_interval_has_no_width(shared_docker_sandbox: Sandbox) -> None:
    first, second = (judged(shared_docker_sandbox, "simulated", KITS["simulated"].right) for _ in range(2))
    assert first.speedup is not None and second.speedup is not None
    one, other = first.speedup["eager"], second.speedup["eager"]
    assert (one.value, one.low, one.high) == (other.value, other.low, other.high)
    assert one.low == pytest.approx(one.value) == one.high
    assert first.latency_ms["candidate"].median == second.latency_ms["candidate"].median
    # 200 to start; 64 KiB loaded and stored, 1 KiB of weights; three instructions on 1,024 groups of 16 elements.
    assert first.profile["cycles"] == {
        "start": 200, "input": 2048, "state": 32, "multiply": 1024, "relu": 1024, "add": 1024, "store": 2048,
    }  # fmt: skip
    assert first.latency_ms["candidate"].median == pytest.approx(7400 * 1e-6)
    # Eager starts a program for each of three operators, which loads its operands and stores its result.
    assert first.latency_ms["eager"].median == pytest.approx(
        ((200 + 4128 + 1024) + (200 + 4096 + 1024) + (200 + 6144 + 1024)) * 1e-6
    )


def test_the_exemplar_of_the_array_machine_is_faster_than_eager(shared_docker_sandbox: Sandbox) -> None:
    texts = platform_of("simulated").prompts()
    task, source = ((texts.folder / "exemplars" / f"normalization{part}.py").read_text() for part in ("_task", ""))
    small = task_from_source(task.replace("4096, 1024", "256, 1024"), name="layer_norm_relu")
    found = evaluate(small, source, sandbox=shared_docker_sandbox, platform=platform_of("simulated"), effort=EFFORT)
    assert found.verdict == Verdict.PASSED and found.speedup is not None
    assert found.speedup["eager"].value > 1.5
