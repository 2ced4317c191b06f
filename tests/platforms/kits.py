"""Candidates of every kind for one small op, for each platform: what the conformance suite runs."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.platforms import arm64_candidates, opencl_candidates
from tests.platforms.emulated_candidates import LOOP
from tests.platforms.riscv_candidates import ATTACKS, candidate

OP = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        return F.relu(x * self.weight) + x


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [256]
"""


@dataclass(frozen=True)
class Kit:
    """Candidates for `OP` on one platform.

    Attributes:
        right: passes.
        wrong: differs from the reference in a few elements.
        slower: is right, and takes much longer than `right`.
        raises: fails in each call.
        broken: is no Python.
        cheats: by name, candidates that must not pass, or must gain nothing by it.
    """

    right: str
    slower: str
    wrong: str
    raises: str
    cheats: dict[str, str]
    broken: str = "class ModelNew(:\n"


_TORCH = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.first = None

    def forward(self, x):
        {body}
"""

CPU = Kit(
    right=_TORCH.format(body="return F.relu(x * self.weight) + x"),
    slower=_TORCH.format(body="return [F.relu(x * self.weight) + x for _ in range(50)][-1]"),
    wrong=_TORCH.format(body="return F.relu(x * self.weight).clamp(max=3.0) + x"),
    raises=_TORCH.format(body="raise RuntimeError('no such kernel')"),
    cheats={
        "the first answer for every call": _TORCH.format(
            body="self.first = F.relu(x * self.weight) + x if self.first is None else self.first; return self.first"
        ),
        "nothing": _TORCH.format(body="return torch.empty_like(x)"),
    },
)

_PROGRAM = """
import array_machine as am


class ModelNew:
    def __init__(self, features):
        self.first = None

    def __call__(self, x):
        {body}
"""

_FORGED = """
import array_machine as am
import gc


class ModelNew:
    def __init__(self, features):
        pass

    def __call__(self, x):
        y = am.relu(x * am.state("weight")) + x
        program = x._program
        {forgery}
        return y
"""

SIMULATED = Kit(
    right=_PROGRAM.format(body='return am.relu(x * am.state("weight")) + x'),
    slower=_PROGRAM.format(body='y = am.relu(x * am.state("weight")) + x; return am.maximum(am.minimum(y, y), y)'),
    wrong=_PROGRAM.format(body='return am.minimum(am.relu(x * am.state("weight")), 3.0) + x'),
    raises=_PROGRAM.format(body="raise RuntimeError('no such program')"),
    cheats={
        "computes with torch": _PROGRAM.format(body="import torch; return torch.relu(x)"),
        "looks at numbers": _PROGRAM.format(body="return x if x.item() > 0 else -x"),
        "an array of another call": _PROGRAM.format(
            body='self.first = self.first or am.relu(x * am.state("weight")) + x; return self.first'
        ),
        "no instructions": _FORGED.format(forgery="program.instructions.clear()"),
        "an instruction that there is not": _FORGED.format(
            forgery='program.instructions[-1] = type(program.instructions[-1])("free", (0,), {})'
        ),
        "a value that does not come before": _FORGED.format(
            forgery="make = type(program.instructions[1]); "
            "program.instructions[1] = make('relu', (len(program.instructions) - 1,), {})"
        ),
        "a state that there is not": _FORGED.format(
            forgery='program.instructions[-1] = type(program.instructions[-1])("state", (), {"name": "answer"})'
        ),
    },
)

RISCV = Kit(
    right=candidate(),
    slower=candidate(f"{LOOP} {LOOP}"),
    wrong=candidate(f"{LOOP} y[rows * n - 3] += 0.25f;"),
    raises=candidate(before="raise RuntimeError('no such kernel')"),
    cheats={
        name: ATTACKS[name].source
        for name in (
            "computes with torch",
            "right at 128 bits alone",
            "searches for its count",
            "counts from the start again",
            "ends before its work is done",
            "launches nothing",
            "patches the compiler in PATH",
            "claims a count and launches nothing",
        )
    },
)

ARM64 = Kit(
    right=arm64_candidates.candidate(),
    slower=arm64_candidates.candidate(f"{LOOP} {LOOP}"),
    wrong=arm64_candidates.candidate(f"{LOOP} y[rows * n - 3] += 0.25f;"),
    raises=arm64_candidates.candidate(before="raise RuntimeError('no such kernel')"),
    cheats={
        name: arm64_candidates.ATTACKS[name].source  # what meets the others is the code of riscv
        for name in ("right at 128 bits alone", "changes what the launcher keeps by vectors")
    },
)

_CUDA = """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r'''
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void scaled_relu_kernel(const float* x, const float* w, float* y, int features) {{
    for (int i = threadIdx.x; i < features; i += blockDim.x) {{
        const float value = x[blockIdx.x * features + i];
        y[blockIdx.x * features + i] = {result} + value;
    }}
}}

torch::Tensor scaled_relu(torch::Tensor x, torch::Tensor w) {{
    TORCH_CHECK(x.is_cuda(), "x must lie on the GPU");
    auto y = torch::empty_like(x);
    {launch}
    return y;
}}
'''
extension = load_inline(
    name="scaled_relu",
    cpp_sources="torch::Tensor scaled_relu(torch::Tensor x, torch::Tensor w);",
    cuda_sources=CUDA,
    functions=["scaled_relu"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.first = None

    def forward(self, x):
        {body}
"""


def cuda(
    result: str = "(value * w[i] < 0.0f ? 0.0f : value * w[i])",
    launch: str = "scaled_relu_kernel<<<x.size(0), 128, 0, at::cuda::getCurrentCUDAStream()>>>("
    "x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), x.size(1));",
    body: str = "return extension.scaled_relu(x.contiguous(), self.weight)",
) -> str:
    """A candidate of platform `cuda` for `OP`: the kernel's expression, its launch, and `forward`."""
    return _CUDA.format(result=result, launch=launch, body=body)


def hip(
    result: str = "(value * w[i] < 0.0f ? 0.0f : value * w[i])",
    launch: str = "hipLaunchKernelGGL(scaled_relu_kernel, dim3(x.size(0)), dim3(128), 0, "
    "c10::hip::getCurrentHIPStream(), x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), int(x.size(1)));",
    body: str = "return extension.scaled_relu(x.contiguous(), self.weight)",
) -> str:
    """A candidate of platform `hip` for `OP`: the kernel's expression, its launch, and `forward`."""
    return cuda(result, launch, body).replace("ATen/cuda/CUDAContext.h", "hip/hip_runtime.h")


def screened_kit(candidate: Callable[..., str]) -> Kit:
    """The kit of a platform whose candidates this function writes, from a kernel's expression, launch and `forward`."""
    return Kit(
        right=candidate(),
        slower=candidate(),
        wrong=candidate(result="fminf((value * w[i] < 0.0f ? 0.0f : value * w[i]), 3.0f)"),
        raises=CPU.raises,
        cheats={
            "the first answer for every call": candidate(
                body="self.first = extension.scaled_relu(x, self.weight) if self.first is None else self.first; "
                "return self.first"
            ),
            "never launches": candidate(launch=""),
        },
    )


SCREENED = screened_kit(cuda)
HIP = screened_kit(hip)

OPENCL = Kit(
    right=opencl_candidates.candidate(),
    slower=opencl_candidates.candidate(
        before="for _ in range(20): kernel(queue, (x.numel(),), None, *memory, self.weight.numel())"
    ),
    wrong=opencl_candidates.candidate(opencl_candidates.SCALED_RELU.replace("(p < 0 ? 0 : p)", "clamp(p, 0.0f, 3.0f)")),
    raises=opencl_candidates.candidate(before="raise RuntimeError('no such kernel')"),
    cheats={
        name: opencl_candidates.ATTACKS[name].source
        for name in (
            "returns while its kernel still runs",
            "waits for an event of its own that comes later",
            "copies the first answer",
            "one output for all calls",
            "launches nothing",
        )
    },
)


_TRITON = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_relu_kernel(x_ptr, w_ptr, y_ptr, features, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < features
    at = tl.program_id(0) * features + columns
    value = tl.load(x_ptr + at, mask=inside)
    scaled = value * tl.load(w_ptr + columns, mask=inside)
    tl.store(y_ptr + at, {result} + value, mask=inside)


def scaled_relu(x, w):
    assert x.is_cuda, "x must lie on the GPU"
    y = torch.empty_like(x)
    {launch}
    return y


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.first = None

    def forward(self, x):
        {body}
"""


def triton(
    result: str = "tl.where(scaled < 0, 0.0, scaled)",
    launch: str = "scaled_relu_kernel[(x.shape[0],)](x, w, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))",
    body: str = "return scaled_relu(x.contiguous(), self.weight)",
) -> str:
    """A candidate of platform `triton` for `OP`: the kernel's expression, its launch, and `forward`."""
    return _TRITON.format(result=result, launch=launch, body=body)


TRITON = Kit(
    right=triton(),
    slower=triton(),
    wrong=triton(result="tl.minimum(tl.where(scaled < 0, 0.0, scaled), 3.0)"),
    raises=CPU.raises,
    cheats={
        "the first answer for every call": triton(
            body="self.first = scaled_relu(x, self.weight) if self.first is None else self.first; return self.first"
        ),
        "never launches": triton(launch=""),
    },
)

KITS = {
    "cpu": CPU,
    "simulated": SIMULATED,
    "riscv": RISCV,
    "arm64": ARM64,
    "cuda": SCREENED,
    "opencl": OPENCL,
    "triton": TRITON,
    "hip": HIP,
}
