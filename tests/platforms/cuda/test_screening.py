"""What the screening of whole candidates says: honest ones are screened, faults and cheats are told and refused."""

from pathlib import Path

import pytest

from evaluator.evaluate import evaluate
from evaluator.platforms import screening_platform
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tests.platforms.cuda.candidates import ATTACKS, HONEST, RELU, Case, elementwise
from tests.platforms.screened import EFFORT, exemplars_of, judged, op_of, see, see_exemplar

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("cuda_screening")]


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_candidate_is_screened(shared_cuda_sandbox: Sandbox, name: str) -> None:
    see(HONEST[name], judged(shared_cuda_sandbox, HONEST[name], "cuda"))


@pytest.mark.parametrize("name", ATTACKS)
def test_a_fault_or_a_cheat_is_told(shared_cuda_sandbox: Sandbox, name: str) -> None:
    see(ATTACKS[name], judged(shared_cuda_sandbox, ATTACKS[name], "cuda"))


@pytest.mark.parametrize("path", exemplars_of("cuda"), ids=lambda path: path.stem)
def test_an_exemplar_is_screened(shared_cuda_sandbox: Sandbox, path: Path) -> None:
    see_exemplar(shared_cuda_sandbox, path, "cuda")


PTX = elementwise(
    "twice(v)", more='__device__ float twice(float v) { asm("add.f32 %0, %0, %0;" : "+f"(v)); return v; }'
)
"""No host runs it."""
HOSTS_FUNCTION = elementwise("twice(v)", more="float twice(float v) { return v * 2; }")
"""Without `__device__` a function is the host's: g++ takes the call, a GPU's compiler does not."""


@pytest.mark.nvrtc
@pytest.mark.usefixtures("gpu_compiler")
def test_what_cannot_be_emulated_is_compiled_only_and_the_line_is_told(shared_cuda_sandbox: Sandbox) -> None:
    found = judged(shared_cuda_sandbox, Case("x * 2", "33, 70", PTX, "screened"), "cuda")
    assert "line 5: asm: inline PTX" in found.message
    assert (found.verdict, found.tags) == ("screened", ("compiled",)), found.message


@pytest.mark.nvrtc
@pytest.mark.usefixtures("gpu_compiler")
def test_a_kernel_that_only_a_hosts_compiler_takes_does_not_compile(shared_cuda_sandbox: Sandbox) -> None:
    found = judged(shared_cuda_sandbox, Case("x * 2", "33, 70", HOSTS_FUNCTION, "build_failed"), "cuda")
    assert (found.verdict, found.code) == ("build_failed", "for_gpus")
    assert 'identifier "twice" is undefined' in found.message


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers are shown no compiler for GPUs, as where it is not installed."""
    monkeypatch.setattr("evaluator.platforms.cuda.platform.toolkit", lambda: None)


@pytest.mark.usefixtures("no_compiler")
def test_without_the_compiler_nothing_is_shown_of_what_cannot_be_emulated(cuda_sandbox: Sandbox) -> None:
    found = judged(cuda_sandbox, Case("x * 2", "33, 70", PTX, "build_failed"), "cuda")
    assert (found.verdict, found.code) == ("build_failed", "not_emulated")
    assert "line 5: asm: inline PTX" in found.message


@pytest.mark.usefixtures("no_compiler")
def test_without_the_compiler_a_hosts_function_is_no_kernel_of_its_own(cuda_sandbox: Sandbox) -> None:
    found = judged(cuda_sandbox, Case("x * 2", "33, 70", HOSTS_FUNCTION, "screened"), "cuda")
    assert found.verdict == "screened", found.message
    assert not {"compiled", "race_free", "custom_kernel"} & set(found.tags)


FUNCTIONS = r"""
import torch
from torch.utils.cpp_extension import load_inline

CPP = '''
#include <torch/extension.h>
{with_pybind11}
torch::Tensor add(torch::Tensor x, double by) {{ return x.add(by); }}
std::vector<torch::Tensor> two(const torch::Tensor& x, int n, bool flag) {{ return {{x.mul(n), flag ? x : -x}}; }}
std::tuple<torch::Tensor, int> given(at::Tensor&& x, std::optional<torch::Tensor> y) {{ return {{x, y ? 1 : 0}}; }}
void fill(torch::Tensor& x, float v) {{ x.fill_(v); }}
int64_t total(std::vector<int64_t> n, at::IntArrayRef m) {{ return at::IntArrayRef(n).size() + 10 * m.back(); }}
std::string say(std::string name) {{ TORCH_CHECK(name != "bad", "no ", name); return "hello " + name; }}
uint8_t small(uint8_t x) {{ return x; }}
at::Tensor undefined() {{ return {{}}; }}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{
    m.def("add", &add, "adds").def("two", &two).def("given", &given).def("fill", &fill).def("total", &total);
    m.def("say", &say); m.def("small", &small); m.def("undefined", &undefined);
}}
'''
m = load_inline(name="mine", cpp_sources=CPP)


def refused(kind, function, *given):
    try:
        function(*given)
    except kind as error:
        assert kind is TypeError and "incompatible function arguments" in str(error) or "no bad" in str(error), error
    else:
        raise AssertionError(f"{{function}} took {{given}}")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        one = torch.ones(2)
        assert m.add(one, 2).tolist() == [3, 3] and m.add(one, 0.5).tolist() == [1.5, 1.5] and "adds" in m.add.__doc__
        assert [each.tolist() for each in m.two(one, torch.tensor(3), False)] == [[3, 3], [-1, -1]]
        assert m.given(one, None)[1] == 0 and m.given(one, one)[1] == 1 and m.undefined() is None
        assert m.fill(one, 4) is None and one.tolist() == [4, 4]
        assert m.total(x.shape, [7, 8]) == x.dim() + 80 and m.say("me") == "hello me" and m.small(255) == 255
        for given in ((one, "a"), (one,), (None, 1), (one, 1, 2)):
            refused(TypeError, m.add, *given)
        refused(TypeError, m.two, one, 1.5, True)
        refused(TypeError, m.small, 256)
        refused(TypeError, m.small, -1)
        refused(TypeError, m.total, 3, [])
        refused(TypeError, m.say, 3)
        refused(RuntimeError, m.say, "bad")
        return x.relu()
"""


@pytest.mark.parametrize("more", ["", "namespace py = pybind11;"], ids=["bindings.h", "pybind11"])
def test_functions_take_and_give_what_they_do_by_pybind11(shared_cuda_sandbox: Sandbox, more: str) -> None:
    task = task_from_source(op_of(*RELU), name="functions")
    source = FUNCTIONS.format(with_pybind11=more)
    found = evaluate(task, source, sandbox=shared_cuda_sandbox, platform=screening_platform("cuda"), effort=EFFORT)
    assert found.verdict == "screened" and "torch_only" in found.tags, f"{found.message}\n{found.detail}"
