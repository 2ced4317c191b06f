"""Honest candidates for a GPU: each must pass there, and where its kernels are screened.

What they do is what careful evaluators tend to refuse by mistake: streams that are joined, a graph in each call, memory
of their own, weights prepared in the first call, products in narrow types whose errors are corrected, tuned kernels.
"""

from dataclasses import dataclass

from tests.platforms.gpu.attacks import PLAIN
from tests.platforms.gpu.ops import FINITE_PRODUCT, LINEAR, PAIR, PRODUCT, RMS_NORM, ROW_SUM, SOFTMAX
from tests.platforms.kits import OP


@dataclass(frozen=True)
class Honest:
    """A candidate that must pass.

    Attributes:
        source: the candidate.
        op: the op that it is for.
        platform: the language.
        screened: the same kernels as they can be screened without a GPU; empty: there is no kernel of its own.
    """

    source: str
    op: str = OP
    platform: str = "cuda"
    screened: str = ""


def _in_torch(old: str, new: str) -> str:
    assert old in PLAIN
    return PLAIN.replace(old, new)


def _forward(body: str) -> str:
    lines = "\n".join(f"        {line}" for line in body.strip("\n").splitlines())
    return _in_torch("        return self.right(x)", lines)


HONEST = {
    "torch": Honest(PLAIN),
    "a side stream that is joined": Honest(
        _forward("""
self.side = self.side or torch.cuda.Stream()
self.side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(self.side):
    y = self.right(x)
torch.cuda.current_stream().wait_stream(self.side)
return y
""")
    ),
    "torch.compile": Honest(
        _forward("""
self.kept = self.kept or torch.compile(self.right, dynamic=False)
return self.kept(x)
""")
    ),
    "in place, on memory of its own": Honest(_forward("return torch.mul(x, self.weight).relu_().add_(x)")),
    "six products in bfloat16 in place of one in float32": Honest(
        """
import torch
import torch.nn as nn


def parts(x):
    high = x.bfloat16()
    middle = (x - high.float()).bfloat16()
    return high, middle, (x - high.float() - middle.float()).bfloat16()


class ModelNew(nn.Module):
    def forward(self, a, b):
        (ah, am, al), (bh, bm, bl) = parts(a), parts(b)
        pairs = [(ah, bl), (am, bm), (al, bh), (ah, bm), (am, bh), (ah, bh)]
        return sum(torch.mm(left, right, out_dtype=torch.float32) for left, right in pairs)
""",
        FINITE_PRODUCT,
    ),
}


def _both(source: str, op: str, platform: str = "cuda") -> Honest:
    """One whose file is screened as it is."""
    return Honest(source, op, platform, source)


_INLINE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
{cuda}
"""
extension = load_inline(name="{name}", cpp_sources="{declared};", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, {arguments}):
        return extension.run({given})
'''

HONEST["C++: kernels on two streams, joined by events"] = _both(
    _INLINE.format(
        name="honest_two_streams",
        declared="torch::Tensor run(torch::Tensor x, torch::Tensor y)",
        arguments="x, y",
        given="x.contiguous(), y.contiguous()",
        cuda="""
__global__ void sigmoid_kernel(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 1.0f / (1.0f + expf(-x[i]));
}
__global__ void tanh_kernel(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tanhf(x[i]);
}
__global__ void product_kernel(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] * b[i];
}
torch::Tensor run(torch::Tensor x, torch::Tensor y) {
    TORCH_CHECK(x.is_cuda() && y.is_cuda(), "on the GPU");
    auto a = torch::empty_like(x), b = torch::empty_like(x), out = torch::empty_like(x);
    const int n = x.numel(), blocks = (n + 255) / 256;
    cudaStream_t main_stream = at::cuda::getCurrentCUDAStream(), side = at::cuda::getStreamFromPool();
    cudaEvent_t begun, done;
    cudaEventCreateWithFlags(&begun, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    cudaEventRecord(begun, main_stream);
    cudaStreamWaitEvent(side, begun, 0);
    tanh_kernel<<<blocks, 256, 0, side>>>(y.data_ptr<float>(), b.data_ptr<float>(), n);
    cudaEventRecord(done, side);
    sigmoid_kernel<<<blocks, 256, 0, main_stream>>>(x.data_ptr<float>(), a.data_ptr<float>(), n);
    cudaStreamWaitEvent(main_stream, done, 0);
    product_kernel<<<blocks, 256, 0, main_stream>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n);
    cudaEventDestroy(begun);
    cudaEventDestroy(done);
    return out;
}
""",
    ),
    PAIR,
)

HONEST["C++: a softmax in one pass, by warps"] = _both(
    _INLINE.format(
        name="honest_softmax",
        declared="torch::Tensor run(torch::Tensor x)",
        arguments="x",
        given="x.contiguous()",
        cuda="""
__global__ void softmax_kernel(const float* x, float* y, int rows, int n) {
    const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const float* from = x + (long long)row * n;
    float largest = -3.402823466e+38f, sum = 0.0f;
    for (int i = lane; i < n; i += 32) {
        const float value = from[i];
        if (value > largest) { sum *= expf(largest - value); largest = value; }
        sum += expf(value - largest);
    }
    float all = largest;
    for (int by = 16; by > 0; by /= 2) all = fmaxf(all, __shfl_xor_sync(0xffffffffu, all, by));
    sum *= expf(largest - all);
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    for (int i = lane; i < n; i += 32) y[(long long)row * n + i] = expf(from[i] - all) / sum;
}
torch::Tensor run(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "on the GPU");
    auto y = torch::empty_like(x);
    const int n = x.size(-1), rows = x.numel() / n;
    softmax_kernel<<<(rows + 3) / 4, 128, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), rows, n);
    return y;
}
""",
    ),
    SOFTMAX,
)

_ROWS = r"""
extern "C" __global__ void rms_norm(const float* x, const float* w, float* y, int n, double eps) {
    __shared__ float part[32];
    const float* from = x + (long long)blockIdx.x * n;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += from[i] * from[i];
    for (int by = 16; by > 0; by /= 2) sum += __shfl_down_sync(0xffffffffu, sum, by);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int i = 0; i < blockDim.x / 32; i++) sum += part[i];
    const float scale = 1.0f / sqrtf(sum / n + (float)eps);
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[(long long)blockIdx.x * n + i] = from[i] * scale * w[i];
}
"""

HONEST["NVRTC: a norm, a block for each row"] = _both(
    f'''
import torch
import torch.nn as nn

CUDA = r"""{_ROWS}"""


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.kernel = torch.cuda._compile_kernel(CUDA, "rms_norm")

    def forward(self, x):
        x, y = x.contiguous(), torch.empty(x.shape, device=x.device)
        n = x.shape[-1]
        self.kernel(grid=(x.numel() // n, 1, 1), block=(128, 1, 1), args=[x, self.weight, y, n, 1e-5])
        return y
''',
    RMS_NORM,
)

_LINEAR = r"""
extern "C" __global__ void linear(const float* x, const float* w, float* y, int width, int out) {
    extern __shared__ float row[];
    for (int i = threadIdx.x; i < width; i += blockDim.x) row[i] = x[(long long)blockIdx.x * width + i];
    __syncthreads();
    for (int column = threadIdx.x; column < out; column += blockDim.x) {
        float sum = 0.0f;
        for (int i = 0; i < width; i++) sum += row[i] * w[i * out + column];
        y[(long long)blockIdx.x * out + column] = sum;
    }
}
"""

HONEST["NVRTC: weights transposed in the first call and kept"] = _both(
    f'''
import torch
import torch.nn as nn

CUDA = r"""{_LINEAR}"""


class ModelNew(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, width) / width**0.5)
        self.kernel = torch.cuda._compile_kernel(CUDA, "linear")
        self.turned = None

    def forward(self, x):
        if self.turned is None:
            self.turned = self.weight.detach().t().contiguous()
        width, out = self.turned.shape
        x = x.contiguous()
        rows = x.numel() // width
        y = torch.empty((*x.shape[:-1], out), device=x.device)
        given = [x, self.turned, y, width, out]
        self.kernel(grid=(rows, 1, 1), block=(64, 1, 1), args=given, shared_mem=4 * width)
        return y
''',
    LINEAR,
)

_SCALED = r"""
extern "C" __global__ void scaled_relu(const float* x, const float* w, float* y, int n, int features) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const float value = x[i], scaled = value * w[i % features];
        y[i] = (scaled < 0.0f ? 0.0f : scaled) + value;
    }
}
"""

_GRAPH = '''
import torch
import torch.nn as nn

CUDA = r"""{cuda}"""


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.kernel = torch.cuda._compile_kernel(CUDA, "scaled_relu")
        self.graphs = {{}}

    def launch(self, x, y):
        args = [x, self.weight, y, x.numel(), x.shape[-1]]
        self.kernel(grid=(64, 1, 1), block=(256, 1, 1), args=args{stream})

    def forward(self, x):
{body}
'''

HONEST["NVRTC: a graph in each call, on memory of its own"] = Honest(
    _GRAPH.format(
        cuda=_SCALED,
        stream=", stream=torch.cuda.current_stream()",
        body="""        if x.shape not in self.graphs:
            given, made = (torch.empty(x.shape, device=x.device) for _ in range(2))
            graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.launch(given, made)
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph):
                self.launch(given, made)
            self.graphs[x.shape] = given, made, graph
        given, made, graph = self.graphs[x.shape]
        given.copy_(x)
        graph.replay()
        return made.clone()""",
    ),
    screened=_GRAPH.format(
        cuda=_SCALED,
        stream="",
        body="""        x, y = x.contiguous(), torch.empty(x.shape, device=x.device)
        self.launch(x, y)
        return y""",
    ),
)

_TRITON = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

{kernel}

class ModelNew(nn.Module):
{init}    def forward(self, {arguments}):
{body}
"""


def _triton(kernel: str, body: str, op: str, arguments: str = "x", init: str = "") -> Honest:
    lines = "\n".join(f"        {line}" for line in body.strip("\n").splitlines())
    given = f"    def __init__(self, width):\n        super().__init__()\n        {init}\n\n" if init else ""
    return _both(_TRITON.format(kernel=kernel, body=lines, arguments=arguments, init=given), op, "triton")


HONEST["Triton: autotune over flat elements"] = _triton(
    """
@triton.autotune(
    configs=[triton.Config({"BLOCK": 1024}, num_warps=4), triton.Config({"BLOCK": 4096}, num_warps=8)], key=["n"]
)
@triton.jit
def scaled_relu(x_ptr, w_ptr, y_ptr, n, features, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x_ptr + at, mask=inside, other=0.0)
    scaled = value * tl.load(w_ptr + at % features, mask=inside, other=0.0)
    tl.store(y_ptr + at, tl.where(scaled < 0, 0.0, scaled) + value, mask=inside)
""",
    """
x = x.contiguous()
y = torch.empty_like(x)
scaled_relu[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, self.weight, y, x.numel(), x.shape[-1])
return y
""",
    OP,
    init="self.weight = nn.Parameter(torch.rand(width) + 0.5)",
)

HONEST["Triton: heuristics for the block of a row"] = _triton(
    """
@triton.heuristics({
    "BLOCK": lambda given: triton.next_power_of_2(given["n"]), "num_warps": lambda given: 4 if given["n"] < 2048 else 8
})
@triton.jit
def softmax(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x_ptr + row * n + columns, mask=columns < n, other=float("-inf"))
    powers = tl.exp(value - tl.max(value, 0))
    tl.store(y_ptr + row * n + columns, powers / tl.sum(powers, 0), mask=columns < n)
""",
    """
x = x.contiguous()
y = torch.empty_like(x)
softmax[(x.numel() // x.shape[-1],)](x, y, x.shape[-1])
return y
""",
    SOFTMAX,
)

_DOT = """
@triton.jit
def product(a_ptr, b_ptr, c_ptr, rows, columns, depth, SIDE: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    column = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    inner = tl.arange(0, STEP)
    total = tl.zeros((SIDE, SIDE), dtype=tl.float32)
    for start in range(0, depth, STEP):
        k = start + inner
        in_a = (row[:, None] < rows) & (k[None, :] < depth)
        in_b = (k[:, None] < depth) & (column[None, :] < columns)
        a = tl.load(a_ptr + row[:, None] * depth + k[None, :], mask=in_a, other=0.0)
        b = tl.load(b_ptr + k[:, None] * columns + column[None, :], mask=in_b, other=0.0)
        total = tl.dot(a, b, total, input_precision="PRECISION")
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    tl.store(c_ptr + row[:, None] * columns + column[None, :], total, mask=inside)
"""
_DOT_FORWARD = """
a, b = a.contiguous(), b.contiguous()
(rows, depth), columns = a.shape, b.shape[1]
c = torch.empty((rows, columns), device=a.device)
product[(triton.cdiv(rows, 32), triton.cdiv(columns, 32))](a, b, c, rows, columns, depth, SIDE=32, STEP=64)
return c
"""

HONEST["Triton: a float32 product, exactly"] = _triton(_DOT.replace("PRECISION", "ieee"), _DOT_FORWARD, PRODUCT, "a, b")
HONEST["Triton: three products in TF32"] = _triton(
    _DOT.replace("PRECISION", "tf32x3"), _DOT_FORWARD, FINITE_PRODUCT, "a, b"
)

HONEST["Triton: a sum in blocks of a row"] = _triton(
    """
@triton.jit
def row_sum(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * n + columns, mask=columns < n, other=0.0)
    tl.store(y_ptr + row, tl.sum(total, 0))
""",
    """
x = x.contiguous()
y = torch.empty(x.shape[:-1], device=x.device)
row_sum[(y.numel(),)](x, y, x.shape[-1], BLOCK=256)
return y
""",
    ROW_SUM,
)

HONEST["Triton: a norm with its weights"] = _triton(
    """
@triton.jit
def rms_norm(x_ptr, w_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = columns < n
    value = tl.load(x_ptr + row * n + columns, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.sum(value * value, 0) / n + eps)
    weight = tl.load(w_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * n + columns, value * scale * weight, mask=inside)
""",
    """
x = x.contiguous()
y, n = torch.empty_like(x), x.shape[-1]
rms_norm[(x.numel() // n,)](x, self.weight, y, n, 1e-5, BLOCK=triton.next_power_of_2(n))
return y
""",
    RMS_NORM,
    init="self.weight = nn.Parameter(torch.ones(width))",
)
