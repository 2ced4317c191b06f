"""Candidates for a GPU without one: they are Python, kernels of attacks compile, honest ones are screened."""

import ast
from dataclasses import replace

import pytest

from evaluator.evaluate import evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import screening_platform
from evaluator.referee.runner.platforms.cuda import nvrtc
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tests.platforms.gpu.attacks import ATTACKS, GAINS
from tests.platforms.gpu.honest import HONEST
from tests.platforms.gpu.ops import LARGE
from tests.platforms.screened import EFFORT, SHOWN

HOPPER = replace(EFFORT, architectures=("sm_90a",))
OPS = sorted({each.op for each in [*ATTACKS.values(), *HONEST.values()]})
SOURCES = {
    "the large op": LARGE,
    **{name: each.source for name, each in ATTACKS.items()},
    **{name: each.source for name, each in HONEST.items()},
    **{
        f"op {number}": op
        for number, op in enumerate(sorted({each.op for each in [*ATTACKS.values(), *HONEST.values()]}))
    },
    **{f"{name}, with it": each.tried for name, each in GAINS.items()},
    **{f"{name}, without": each.plain for name, each in GAINS.items()},
    **{f"{name}, screened": each.screened for name, each in HONEST.items() if each.screened},
}
SCREENED = {platform: [name for name, each in HONEST.items() if each.screened and each.platform == platform]
            for platform in ("cuda", "triton")}  # fmt: skip


def screened(sandbox: Sandbox, platform: str, op: str, source: str) -> Evaluation:
    task = task_from_source(op, name="case")
    return evaluate(task, source, sandbox=sandbox, platform=screening_platform(platform), effort=HOPPER)


@pytest.mark.parametrize("name", SOURCES)
def test_each_candidate_and_each_op_is_python(name: str) -> None:
    names = {node.name for node in ast.walk(ast.parse(SOURCES[name])) if isinstance(node, ast.ClassDef)}
    assert names & {"Model", "ModelNew"}


def test_there_are_enough_and_each_attack_says_what_refuses_it() -> None:
    assert len(ATTACKS) >= 25 and len(GAINS) >= 4
    assert len(SCREENED["cuda"]) >= 5 and len(SCREENED["triton"]) >= 5
    for attack in ATTACKS.values():
        assert attack.why and attack.verdicts and "passed" not in attack.verdicts
    for gain in GAINS.values():
        assert gain.why and gain.plain != gain.tried and 1 < gain.at_most < 2


@pytest.mark.nvrtc
@pytest.mark.usefixtures("gpu_compiler")
@pytest.mark.parametrize("name", [name for name, each in ATTACKS.items() if each.kernel])
def test_the_kernel_of_an_attack_compiles(name: str) -> None:
    [made] = nvrtc.compile_all([nvrtc.Given(ATTACKS[name].kernel, plain=True)], [], ["sm_90a"])
    assert not made.error, made.error


def see(found: Evaluation) -> None:
    """It is right, and all is shown of it."""
    assert found.verdict == "screened", f"{found.message}\n{found.detail}"
    assert set(found.tags) >= SHOWN, f"{found.message}\n{found.profile}"


@pytest.mark.docker
@pytest.mark.xdist_group("cuda_screening")
@pytest.mark.parametrize("name", SCREENED["cuda"])
def test_an_honest_candidate_in_cuda_is_screened(shared_cuda_sandbox: Sandbox, name: str) -> None:
    see(screened(shared_cuda_sandbox, "cuda", HONEST[name].op, HONEST[name].screened))


@pytest.mark.docker
@pytest.mark.triton
@pytest.mark.xdist_group("triton")
@pytest.mark.usefixtures("triton_installed")
@pytest.mark.parametrize("name", SCREENED["triton"])
def test_an_honest_candidate_in_triton_is_screened(shared_docker_sandbox: Sandbox, name: str) -> None:
    see(screened(shared_docker_sandbox, "triton", HONEST[name].op, HONEST[name].screened))


@pytest.mark.docker
@pytest.mark.xdist_group("cuda_screening")
@pytest.mark.parametrize("name", [name for name, each in ATTACKS.items() if each.screened])
def test_an_attack_is_refused_without_a_gpu_too(shared_cuda_sandbox: Sandbox, name: str) -> None:
    attack = ATTACKS[name]
    found = screened(shared_cuda_sandbox, attack.platform, attack.op, attack.source)
    assert found.verdict == attack.screened, f"{found.message}\n{found.detail}"


@pytest.mark.docker
@pytest.mark.xdist_group("cuda_screening")
def test_shared_memory_that_happens_to_be_zero_is_refused_without_a_gpu(shared_cuda_sandbox: Sandbox) -> None:
    attack = ATTACKS["a sum in shared memory that nobody sets to zero"]
    source = attack.source.replace(
        "y[blockIdx.x] = sum;", "{ y[blockIdx.x] = sum; sum = 0.0f; }  // for the next block"
    )
    assert source != attack.source
    found = screened(shared_cuda_sandbox, "cuda", attack.op, source)
    assert found.verdict == "wrong_output", f"{found.message}\n{found.detail}"
