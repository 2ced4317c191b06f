"""Tasks whose reference is a CUDA kernel: candidates are held to its run in the emulation; faulty ones are refused."""

import contextlib
from pathlib import Path

import pytest

from evaluator.build_cache import BuildCache
from evaluator.evaluate import evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from evaluator.task_check import check_task
from sandbox.base import Sandbox
from service.cancellation import CancelToken
from service.database import open_store
from service.jobs import local
from service.jobs import run as job_run
from service.settings import load_settings
from tasks.build import task_from_source
from tasks.outcomes import is_ranked
from tasks.source_kernel import SourceKernel, constant_text
from tasks.task import Task
from tests.fakes import ScriptedLLM, fenced
from tests.platforms.cuda.candidates import CANDIDATE, FORWARD, elementwise
from tests.platforms.screened import EFFORT, SHOWN
from tests.support.web_application import Web

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("cuda_screening")]

SOFTMAX = """
__global__ void softmax(const float* x, float* y, int width) {
  __shared__ float part[32];
  const float* row = x + blockIdx.x * width;
  float largest = -INFINITY;
  for (int i = 0; i < width; i++) largest = fmaxf(largest, row[i]);
  float sum = 0;
  for (int i = threadIdx.x; i < width; i += 32) sum += expf(row[i] - largest);
  part[threadIdx.x] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < 32; i++) sum += part[i];
  for (int i = threadIdx.x; i < width; i += 32) y[blockIdx.x * width + i] = expf(row[i] - largest) / sum;
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  softmax<<<x.size(0), 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y;
}
"""
BEFORE = """
__global__ void before(const float* x, float* y, int width) {
  __shared__ float row[64];
  row[threadIdx.x] = x[blockIdx.x * width + threadIdx.x];
  SYNC
  y[blockIdx.x * width + threadIdx.x] = row[threadIdx.x == 0 ? 0 : threadIdx.x - 1];
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  before<<<x.size(0), x.size(1)>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y;
}
"""
"""Each element becomes the one before it. Without a barrier that works where threads run one after the other."""
IN_TORCH = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {expression}
"""


def kernel_of(cuda: str, body: str = FORWARD) -> str:
    return CANDIDATE.format(cuda=cuda, body=body)


def task_of(source: str, shape: str = "6, 50") -> Task:
    inputs = f"import torch\n\n\ndef get_inputs():\n    return [torch.randn({shape})]\n\n\n"
    return task_from_source(inputs + constant_text(SourceKernel("cuda", source)), name="translated")


def judged(sandbox: Sandbox, task: Task, candidate: str, **more: object) -> Evaluation:
    return evaluate(task, candidate, sandbox=sandbox, platform=load_platform("cuda"), effort=EFFORT, **more)


def test_candidates_are_held_to_the_kernel_which_is_built_and_examined_once(
    shared_cuda_sandbox: Sandbox, tmp_path: Path
) -> None:
    task, cache = task_of(kernel_of(SOFTMAX)), BuildCache(tmp_path)
    first = judged(shared_cuda_sandbox, task, kernel_of(SOFTMAX), cache=cache)
    assert first.verdict == "screened", f"{first.message}\n{first.detail}"
    assert set(first.tags) >= {*SHOWN, "no_oracle"} and not is_ranked(first.tags)
    assert first.speedup is None and not first.latency_ms and first.roofline is None
    assert first.correctness is not None
    made = [check for check in first.correctness.checks if not check.note.startswith("skipped")]
    assert {check.note for check in made} == {"compared with the source kernel, run in an emulation"}
    assert {"as generated", "sign flipped", "NaN and Inf"} <= {check.inputs for check in made}
    assert "source_kernel" in first.cost_s

    other = IN_TORCH.format(expression="torch.softmax(x, -1)")
    second = judged(shared_cuda_sandbox, task, other, cache=cache)
    assert second.verdict == "screened" and {"torch_only", "no_oracle"} <= set(second.tags)
    assert "source_kernel" not in second.cost_s, "nothing of the task has changed"

    for expression in (
        "torch.softmax(x.half(), -1).float()",
        "torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)",
    ):
        wrong = judged(shared_cuda_sandbox, task, IN_TORCH.format(expression=expression), cache=cache)
        assert wrong.verdict == "wrong_output", f"{expression}: {wrong.message}"
        assert not wrong.tags


WEIGHTS = """self.scale = nn.Parameter(torch.rand({size}))

    def forward(self, x):
        return extension.run(x * self.scale)
"""


def test_the_kernels_parameters_are_given_to_candidates(shared_cuda_sandbox: Sandbox, tmp_path: Path) -> None:
    with_weights = kernel_of(elementwise("v * 2")).replace(
        "    def forward(self, x):\n        return extension.run(x)",
        "    def __init__(self, size):\n        super().__init__()\n        " + WEIGHTS.format(size="size"),
    )
    inputs = "import torch\n\n\ndef get_inputs():\n    return [torch.randn(5, 40)]\n\n\n"
    init = "def get_init_inputs():\n    return [40]\n\n\n"
    source = inputs + init + constant_text(SourceKernel("cuda", with_weights))
    task = task_from_source(source, name="weights")
    right = """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(size))

    def forward(self, x):
        return x * self.scale * 2
"""
    cache = BuildCache(tmp_path)
    assert judged(shared_cuda_sandbox, task, right, cache=cache).verdict == "screened"
    wrong = judged(shared_cuda_sandbox, task, right.replace("* self.scale", ""), cache=cache)
    assert wrong.verdict == "wrong_output"


COUNTS = """if not hasattr(self, "calls"):
            self.calls = 0
        self.calls += 1
        return extension.run(x) + self.calls"""
FAULTY = {
    "race": kernel_of(BEFORE.replace("SYNC", "")),
    "out_of_bounds": kernel_of(elementwise("v", bound="i <= n")),
    "unwritten": kernel_of(elementwise("v", bound="i + 1 < n")),
    "nondeterministic": kernel_of(elementwise("v * 2"), COUNTS),
    "tells_emulation": kernel_of("#ifdef __SANITIZE_THREAD__\n#endif\n" + elementwise("v * 2")),
}


@pytest.mark.parametrize("code", FAULTY)
def test_a_faulty_kernel_is_no_reference(shared_cuda_sandbox: Sandbox, code: str) -> None:
    found = check_task(task_of(FAULTY[code]), sandbox=shared_cuda_sandbox, platform=load_platform("cuda"))
    assert not found.ok and [problem.code for problem in found.problems] == [code], found.problems
    assert found.eager_ms is None


def test_no_candidate_is_blamed_for_a_kernel_that_races(shared_cuda_sandbox: Sandbox) -> None:
    found = judged(
        shared_cuda_sandbox, task_of(FAULTY["race"]), IN_TORCH.format(expression="torch.cat([x[:, :1], x[:, :-1]], 1)")
    )
    assert (found.verdict, found.code) == ("task_invalid", "race"), found.message
    assert found.message.startswith("the source kernel, which is the reference, is at fault: a data race")


def test_a_right_kernel_is_a_reference(shared_cuda_sandbox: Sandbox) -> None:
    found = check_task(task_of(kernel_of(SOFTMAX)), sandbox=shared_cuda_sandbox, platform=load_platform("cuda"))
    assert found.ok and found.eager_ms is None, found.problems
    assert "compared with the source kernel, run in an emulation" in found.warnings


def test_where_candidates_are_timed_there_is_nothing_to_time_against(shared_docker_sandbox: Sandbox) -> None:
    task, cpu = task_of(kernel_of(SOFTMAX)), load_platform("cpu")
    checked = check_task(task, sandbox=shared_docker_sandbox, platform=cpu)
    assert [problem.code for problem in checked.problems] == ["no_baseline"]
    found = evaluate(task, kernel_of(SOFTMAX), sandbox=shared_docker_sandbox, platform=cpu)
    assert (found.verdict, found.code) == ("task_invalid", "no_baseline") and found.speedup is None


TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def softmax(x, y, width, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * width + at, mask=at < width, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * width + at, e / tl.sum(e, 0), mask=at < width)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""


@pytest.mark.triton
@pytest.mark.usefixtures("triton_installed")
def test_a_kernel_is_translated_to_triton(shared_docker_sandbox: Sandbox) -> None:
    task = task_of(kernel_of(SOFTMAX))
    found = evaluate(task, TRITON, sandbox=shared_docker_sandbox, platform=load_platform("triton"), effort=EFFORT)
    assert found.verdict == "screened", f"{found.message}\n{found.detail}"
    assert set(found.tags) >= {*SHOWN, "no_oracle"}


def test_a_job_improves_on_a_kernel_that_is_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "op.py").write_text(task_of(kernel_of(SOFTMAX)).source)
    settings = load_settings(
        data_dir=tmp_path / "data", lock_dir=tmp_path, platform="cuda", sandbox="docker", model="openai/x", rounds=1
    )
    llm = ScriptedLLM([fenced(kernel_of(SOFTMAX))])
    monkeypatch.setattr(job_run, "open_models", lambda *_, **__: llm)
    with contextlib.closing(open_store(settings)) as store:
        report = local.optimize(
            str(tmp_path / "op.py"), settings=settings, store=store, observe=lambda _: None, cancel=CancelToken(),
            out=tmp_path / "fast.py",
        )  # fmt: skip
        page = Web(store, settings, login=False).client().get(f"/jobs/{report.job.id}").text
    sections = llm.sections(0)
    assert "this kernel is the reference" in sections["translation"] and "__global__" in sections["source_kernel"]
    assert "__global__" not in sections["reference"] and "get_inputs" in sections["reference"]
    assert report.best is not None and report.best.verdict == "screened" and "no_oracle" in report.best.tags
    told = (tmp_path / "fast.report.md").read_text()
    assert "This kernel for platform `cuda` is the reference" in told and "not with a float64 oracle" in told
    assert "Outputs are compared with the source kernel, run in an emulation, outside" in told
    assert "faster" not in told and "no_oracle" in page
