"""Candidates for the platform `hip`, honest ones and such as cheat or err: each for an op of its own, small."""

from dataclasses import dataclass

from tests.platforms.cuda.candidates import ALL, FORWARD, RELU, RIGHT
from tests.platforms.screened import op_of

_CANDIDATE = """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

HIP = r'''
#include <torch/extension.h>
#include <hip/hip_runtime.h>
#include <c10/hip/HIPStream.h>
{hip}
'''
CPP = "torch::Tensor run(torch::Tensor x);"
extension = load_inline(name="mine", cpp_sources=CPP, cuda_sources=HIP, functions=["run"], verbose=False)


class ModelNew(nn.Module):
    def forward(self, x):
        {body}
"""


@dataclass(frozen=True)
class Case:
    """An op, a candidate, and what the verdict must say. See `tests.platforms.screened.ScreenedCase`.

    Attributes:
        hip: kernels and the function `run`.
        body: of `forward`.
    """

    reference: str
    shape: str
    hip: str
    verdict: str
    body: str = FORWARD
    says: tuple[str, ...] = ()
    tags: str = ""
    shown: tuple[str, ...] = ()

    @property
    def op(self) -> str:
        """The op's source."""
        return op_of(self.reference, self.shape)

    @property
    def candidate(self) -> str:
        """The candidate's source."""
        return _CANDIDATE.format(hip=self.hip, body=self.body)


def elementwise(expression: str, *, bound: str = "i < n", before: str = "", more: str = "", launch: str = "") -> str:
    """A kernel that computes each element by an expression of `v`, and its launch."""
    launch = launch or (
        "hipLaunchKernelGGL(k, dim3((n + 255) / 256), dim3(256), 0, c10::hip::getCurrentHIPStream(), "
        "x.data_ptr<float>(), y.data_ptr<float>(), n);"
    )
    return f"""{more}
__global__ void __launch_bounds__(256) k(const float* x, float* y, int n) {{
    {before}
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if ({bound}) {{ float v = x[i]; y[i] = {expression}; }}
}}
torch::Tensor run(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    int n = x.numel();
    {launch}
    return y;
}}"""


def row_sum(combine: str, *, threads: int = 128, result: str = "sum") -> str:
    """A kernel that sums each row: `combine` makes the sum of a block of what each thread has."""
    return f"""
__global__ void row_sum(const float* x, float* y, int n) {{
    __shared__ float part[{threads}];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += {threads}) sum += x[blockIdx.x * n + i];
    {combine}
    if (threadIdx.x == 0) y[blockIdx.x] = {result};
}}
torch::Tensor run(torch::Tensor x) {{
    auto y = torch::empty({{x.size(0)}}, x.options());
    row_sum<<<x.size(0), {threads}>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    TORCH_CHECK(hipGetLastError() == hipSuccess, "the launch failed");
    return y;
}}"""


_TREE = """part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {{
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        {between}
    }}"""
_WAVES = """for (int o = {first}; o > 0; o /= 2) sum += __shfl_xor(sum, o);
    if (threadIdx.x % {width} == 0) part[threadIdx.x / {width}] = sum;
    __syncthreads();
    sum = 0;
    for (int wave = 0; wave < 128 / {width}; wave++) sum += part[wave];"""
_SUMS = ("x.sum(1)", "9, 200")

_TILES = """
template <typename T, int TILE> __global__ void product(const T* a, T* c, int m, int n) {
    HIP_DYNAMIC_SHARED(T, tiles)
    T *as = tiles, *bs = tiles + TILE * (TILE + PAD);
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    T sum = 0;
    for (int k0 = 0; k0 < n; k0 += TILE) {
        const bool in = k0 + threadIdx.x < n;
        const int other = blockIdx.x * TILE + threadIdx.y;
        as[threadIdx.y * (TILE + 1) + threadIdx.x] = row < m && in ? a[row * n + k0 + threadIdx.x] : 0;
        bs[threadIdx.y * (TILE + 1) + threadIdx.x] = other < m && in ? a[other * n + k0 + threadIdx.x] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; i++) sum += as[threadIdx.y * (TILE + 1) + i] * bs[threadIdx.x * (TILE + 1) + i];
        __syncthreads();
    }
    if (row < m && column < m) c[row * m + column] = sum;
}
torch::Tensor run(torch::Tensor x) {
    constexpr int tile = 8;
    int m = x.size(0), n = x.size(1);
    auto c = torch::empty({m, m}, x.options());
    const int tiles = (m + tile - 1) / tile, bytes = 2 * tile * (tile + PAD) * sizeof(float);
    hipLaunchKernelGGL(HIP_KERNEL_NAME(product<float, tile>), dim3(tiles, tiles), dim3(tile, tile), bytes, 0,
        x.data_ptr<float>(), c.data_ptr<float>(), m, n);
    return c;
}"""

HONEST: dict[str, Case] = {
    "one element a thread": Case(
        *RELU, elementwise(RIGHT), "screened", tags=f"compiled {ALL}", shown=("'vgprs'", "'occupancy'")
    ),
    "a tree in shared memory": Case(
        *_SUMS, row_sum(_TREE.format(between="__syncthreads();"), result="part[0]"), "screened", tags=f"compiled {ALL}"
    ),
    "shuffles of whole wavefronts": Case(
        *_SUMS, row_sum(_WAVES.format(first="warpSize / 2", width="warpSize")), "screened", tags=f"compiled {ALL}"
    ),
    "shuffles of halves of wavefronts, with masks": Case(
        *_SUMS,
        row_sum(_WAVES.format(first=16, width=32)).replace("__shfl_xor(sum, o)", "__shfl_xor_sync(~0ull, sum, o, 32)"),
        "screened",
        tags=f"compiled {ALL}",
    ),
    "tiles in dynamic shared memory": Case(
        "x @ x.t()", "24, 40", _TILES.replace("PAD", "1"), "screened", tags=f"compiled {ALL}"
    ),
    "votes, atomics and lanes that have left": Case(
        "(x > 0).sum().float()",
        "40, 51",
        """
__global__ void count(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned long long above = __ballot(x[i] > 0);
    if (threadIdx.x % warpSize == 0) atomicAdd(y, float(__popcll(above)));
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::zeros({}, x.options());
    hipDeviceProp_t device;
    TORCH_CHECK(hipGetDeviceProperties(&device, 0) == hipSuccess && device.warpSize == 64);
    count<<<(x.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}""",
        "screened",
        tags=f"compiled {ALL}",
    ),
    "vectors with operators, a table, and what HIP calls CUDA": Case(
        "x * 2 + torch.tensor([1.0, 2.0, 3.0, 4.0])",
        "12, 4",
        """
__constant__ float table[4];
__global__ void k(const float4* x, float4* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f + make_float4(table[0], table[1], table[2], table[3]);
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float values[4] = {1, 2, 3, 4};
    static bool set = false;
    if (!set) hipMemcpyToSymbol(HIP_SYMBOL(table), values, sizeof values);
    set = true;
    k<<<1, 64, 0, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const float4*>(x.data_ptr<float>()), reinterpret_cast<float4*>(y.data_ptr<float>()),
        int(x.size(0)));
    return y;
}""",
        "screened",
        tags=f"compiled {ALL}",
    ),
    "half precision": Case(
        "(x.half() * 2).float()",
        "5, 70",
        elementwise("__half2float(__hmul(__float2half(v), __float2half(2.0f)))", more="#include <hip/hip_fp16.h>"),
        "screened",
        tags=f"compiled {ALL}",
    ),
}

ATTACKS: dict[str, Case] = {
    "a barrier is missing": Case(
        *_SUMS,
        row_sum(_TREE.format(between=""), result="part[0]"),
        "wrong_output",
        says=("data race", "row_sum", "cuda_sources line"),
    ),
    "a race that gives the right result": Case(
        *RELU,
        elementwise(RIGHT, before="__shared__ int same; same = 1;"),
        "crashed:race",
        says=("data race",),
    ),
    "lanes of a wavefront count on steps in common": Case(
        *_SUMS,
        row_sum(_TREE.format(between="if (half > 32) __syncthreads();"), result="part[0]"),
        "wrong_output",
        says=("data race",),
    ),
    "an index behind the padding of tiles": Case(
        "x @ x.t()",
        "24, 40",
        _TILES.replace("PAD", "1").replace("sizeof(float);", "sizeof(float) - 2 * sizeof(float);"),
        "crashed:out_of_bounds",
        says=("memory out of bounds",),
    ),
    "a write behind the end": Case(*RELU, elementwise(RIGHT, bound="i <= n"), "crashed:out_of_bounds"),
    "counts on wavefronts of 32 lanes": Case(
        *_SUMS,
        row_sum(
            "for (int o = 16; o > 0; o /= 2) sum += __shfl_down(sum, o); if (threadIdx.x == 0) part[0] = 0; "
            "__syncthreads(); if (threadIdx.x % warpSize == 0) atomicAdd(part, sum); __syncthreads();",
            result="part[0]",
        ),
        "wrong_output",
    ),
    "reads lanes that take no part": Case(
        *_SUMS,
        row_sum(
            "for (int o = 32; o > 0; o /= 2) if (threadIdx.x < o) sum += __shfl_down(sum, o);",
            threads=64,
        ),
        "wrong_output",
    ),
    "lanes of a wavefront at different shuffles": Case(
        *RELU,
        elementwise(
            RIGHT,
            before="float z = threadIdx.x;\nif (threadIdx.x % 64 < 7)\nz = __shfl(z, 0);\nelse\nz = __shfl(z, 9);",
        ),
        "crashed",
        says=("wavefront divergence", "a shuffle, line"),
    ),
    "barriers in branches": Case(
        *RELU,
        elementwise(RIGHT, before="if (threadIdx.x < 64)\n__syncthreads();\nelse\n__syncthreads();"),
        "crashed:divergence",
        says=("barrier divergence",),
    ),
    "a mask of 32 lanes": Case(
        *RELU,
        elementwise(RIGHT, before="float z = __shfl_sync(0xffffffffu, 1.0f, 0);"),
        "build_failed",
        says=("has 64 bits",),
    ),
    "more shared memory than a block can have": Case(
        *RELU,
        elementwise(
            f"z == 5 ? 0 : {RIGHT}",
            before="__shared__ float held[10000]; extern __shared__ float more[]; held[threadIdx.x] = 1; "
            "if (threadIdx.x == 0) more[0] = 1; __syncthreads(); float z = held[(threadIdx.x + 1) % 256];",
            launch="k<<<(n + 255) / 256, 256, 40000>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);",
        ),
        "build_failed:for_gpus",
        says=("80000 bytes of shared memory; 65536 is the most",),
    ),
    "torch does the work": Case(
        *RELU,
        elementwise(RIGHT),
        "screened",
        body="return x.relu()",
        tags="torch_only -custom_kernel -race_free -in_bounds",
    ),
    "torch does the work before a kernel": Case(
        *RELU,
        elementwise("v"),
        "screened",
        body="return extension.run(x.relu())",
        tags="executed -custom_kernel -race_free -in_bounds",
        shown=("argument 1 of k holds what something else has computed of the inputs",),
    ),
    "never launches": Case(*RELU, elementwise(RIGHT, launch=";"), "wrong_output:nan"),
    "tells the emulation by its compiler": Case(
        *RELU,
        elementwise(RIGHT, before="\n#ifndef __clang__\nif (n < 0) return;\n#endif\n"),
        "integrity:tells_emulation",
        says=("__clang__",),
    ),
    "switches the checks off": Case(
        *RELU,
        elementwise(RIGHT).replace("__global__ void", "__attribute__((no_sanitize_thread)) __global__ void"),
        "integrity:tells_emulation",
    ),
    "takes the host for no device": Case(
        *RELU,
        elementwise(
            f"ON_DEVICE ? 0 : ({RIGHT})",
            more="#ifdef __HIP_DEVICE_COMPILE__\n#define ON_DEVICE 1\n#else\n#define ON_DEVICE 0\n#endif",
        ),
        "wrong_output",
    ),
}

MATRIX_CORES = Case(
    "x * 1",
    "16, 16",
    """
typedef float Four __attribute__((ext_vector_type(4)));
__global__ void k(const float* x, float* y, int n) {
    Four sum = {};
    sum = __builtin_amdgcn_mfma_f32_16x16x4f32(x[threadIdx.x], x[threadIdx.x], sum, 0, 0, 0);
    y[threadIdx.x] = sum[0];
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    k<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), 64);
    return y;
}""",
    "screened",
    says=("line 9: __builtin_amdgcn_mfma_f32_16x16x4f32",),
    tags="compiled -executed",
)
"""No host runs it."""
HOSTS_FUNCTION = Case(
    "x * 2",
    "33, 70",
    elementwise("twice(v)", more="float twice(float v) { return v * 2; }"),
    "build_failed:for_gpus",
    says=("use of undeclared identifier 'twice'",),
)
"""Without `__device__` a function is the host's: g++ takes the call, clang for a GPU does not."""
