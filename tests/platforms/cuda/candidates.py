# ruff: noqa: E501 - CUDA C++ as candidates write it
"""Candidates for the platform `cuda`, honest ones and such as cheat or err: each for an op of its own, small."""

from dataclasses import dataclass

from tests.platforms.screened import op_of

CANDIDATE = """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r'''
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <ATen/cuda/CUDAContext.h>
{cuda}
'''
CPP = "torch::Tensor run(torch::Tensor x);"
extension = load_inline(name="mine", cpp_sources=CPP, cuda_sources=CUDA, functions=["run"], verbose=False)


class ModelNew(nn.Module):
    def forward(self, x):
        {body}
"""
PLAIN = """
import torch
import torch.nn as nn

CUDA = r'''
{cuda}
'''


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {kernels}

    def forward(self, x):
        {body}
"""
FORWARD = "return extension.run(x)"


@dataclass(frozen=True)
class Case:
    """An op, a candidate, and what the verdict must say.

    Attributes:
        reference: the op, an expression of `x`.
        shape: of `x`.
        cuda: kernels and the function `run`.
        body: of `forward`.
        verdict: the verdict, with its code behind a colon if it has one.
        says: words that message or detail must hold.
        tags: tags that it must have; those after a minus it must not have.
        shown: words that the profile must hold.
        kernels: where it has no extension: Python that compiles kernels of `cuda` by `torch.cuda._compile_kernel`.
    """

    reference: str
    shape: str
    cuda: str
    verdict: str
    body: str = FORWARD
    says: tuple[str, ...] = ()
    tags: str = ""
    shown: tuple[str, ...] = ()
    kernels: str = ""

    @property
    def op(self) -> str:
        """The op's source."""
        return op_of(self.reference, self.shape)

    @property
    def candidate(self) -> str:
        """The candidate's source."""
        if self.kernels:
            return PLAIN.format(cuda=self.cuda, kernels=self.kernels, body=self.body)
        return CANDIDATE.format(cuda=self.cuda, body=self.body)


def elementwise(expression: str, *, bound: str = "i < n", more: str = "", launch: str = "") -> str:
    """A kernel that computes each element by an expression of `v`, and its launch."""
    launch = launch or "k<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);"
    return f"""{more}
__global__ void k(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if ({bound}) {{ float v = x[i]; y[i] = {expression}; }}
}}
torch::Tensor run(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    int n = x.numel();
    {launch}
    return y;
}}"""


def block_sum(between: str, *, after: str = "__syncthreads();") -> str:
    """A kernel that sums each row in shared memory; what stands between its steps is given."""
    return f"""
__global__ void row_sum(const float* x, float* y, int n) {{
    __shared__ float part[64];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 64) sum += x[blockIdx.x * n + i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {{
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        {between}
    }}
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}}
torch::Tensor run(torch::Tensor x) {{
    auto y = torch::empty({{x.size(0)}}, x.options());
    row_sum<<<x.size(0), 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}}"""


ALL = "executed custom_kernel race_free in_bounds"
RELU = ("x.relu()", "33, 70")
HONEST: dict[str, Case] = {
    "one element a thread": Case(*RELU, elementwise("v > 0 || v != v ? v : 0"), "screened", tags=ALL),
    "sums in shared memory": Case("x.sum(1)", "9, 200", block_sum("__syncthreads();"), "screened", tags=ALL),
    "four elements at once and a rest": Case(
        "x * 2",
        "7, 31",
        """
#include <cassert>
#include <cfloat>
__device__ __forceinline__ float4& operator*=(float4& v, float f) { v.x *= f; v.y *= f; v.z *= f; v.w *= f; return v; }
template <typename V> __global__ void k(const V* x, V* y, int n) {
    assert(n >= 0);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        V v = x[i];
        v *= FLT_MAX > 0 ? 2.0f : 0.0f;
        y[i] = v;
    }
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel(), four = n / 4;
    auto stream = at::cuda::getCurrentCUDAStream();
    k<<<2, 32, 0, stream>>>(reinterpret_cast<const float4*>(x.data_ptr<float>()), reinterpret_cast<float4*>(y.data_ptr<float>()), four);
    k<float><<<1, 32, 0, stream>>>(x.data_ptr<float>() + 4 * four, y.data_ptr<float>() + 4 * four, n - 4 * four);
    return y;
}""".replace("k<<<2", "k<float4><<<2"),
        "screened",
        tags=ALL,
    ),
    "tiles in dynamic shared memory": Case(
        "x @ x.t()",
        "24, 40",
        """
#define TILE 8
__global__ void k(const float* a, float* c, int m, int n) {
    extern __shared__ float tiles[];
    float *as = tiles, *bs = tiles + TILE * (TILE + 1);
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int k0 = 0; k0 < n; k0 += TILE) {
        as[threadIdx.y * (TILE + 1) + threadIdx.x] = row < m && k0 + threadIdx.x < n ? a[row * n + k0 + threadIdx.x] : 0;
        int other = blockIdx.x * TILE + threadIdx.y;
        bs[threadIdx.y * (TILE + 1) + threadIdx.x] = other < m && k0 + threadIdx.x < n ? a[other * n + k0 + threadIdx.x] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; i++) sum += as[threadIdx.y * (TILE + 1) + i] * bs[threadIdx.x * (TILE + 1) + i];
        __syncthreads();
    }
    if (row < m && column < m) c[row * m + column] = sum;
}
torch::Tensor run(torch::Tensor x) {
    int m = x.size(0), n = x.size(1);
    auto c = torch::empty({m, m}, x.options());
    dim3 block(TILE, TILE), grid((m + TILE - 1) / TILE, (m + TILE - 1) / TILE);
    k<<<grid, block, 2 * TILE * (TILE + 1) * sizeof(float)>>>(x.data_ptr<float>(), c.data_ptr<float>(), m, n);
    return c;
}""",
        "screened",
        tags=ALL,
    ),
    "two kernels and what lies between": Case(
        "x - x.amax(1, keepdim=True)",
        "12, 65",
        """
namespace {
__device__ __forceinline__ float warp_max(float v) {
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, o)) + 0.0f * __shfl_xor_sync(0xffffffff, v, o);
    return v;
}
template <typename scalar_t> __global__ void row_max(const scalar_t* x, scalar_t* m, int n) {
    float v = -INFINITY;
    bool bad = false;
    for (int i = threadIdx.x; i < n; i += 32) { float e = x[blockIdx.x * n + i]; bad |= isnan(e); v = fmaxf(v, e); }
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, o));
    bad = __any_sync(0xffffffff, bad);
    if (threadIdx.x == 0) m[blockIdx.x] = bad ? NAN : v;
}
template <typename scalar_t> __global__ void subtract(const scalar_t* x, const scalar_t* m, scalar_t* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = x[blockIdx.x * n + i] - m[blockIdx.x];
}
}
torch::Tensor run(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.device().is_cuda() && x.device().type() == torch::kCUDA);
    auto y = torch::empty_like(x), m = torch::empty({x.size(0)}, torch::dtype(x.dtype()).device(torch::kCUDA));
    const cudaStream_t stream = at::cuda::getCurrentCUDAStream().stream();
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "centred", ([&] {
        row_max<scalar_t><<<x.size(0), 32, 0, stream>>>(x.data_ptr<scalar_t>(), m.data_ptr<scalar_t>(), x.size(1));
        subtract<scalar_t><<<x.size(0), 64, 0, stream>>>(x.data_ptr<scalar_t>(), m.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.size(1));
    }));
    cudaError_t error = cudaGetLastError();
    TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error));
    TORCH_CHECK(torch::nn::functional::relu(m).size(0) == x.size(0), "a part of torch that few extensions use");
    return y;
}""",
        "screened",
        tags=ALL,
    ),
    "sums by atomics into zeros": Case(
        "x.sum()",
        "40, 50",
        """
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? x[i] : 0.0f;
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
    if (threadIdx.x % 32 == 0) atomicAdd(y, v);
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::zeros({}, x.options());
    k<<<(x.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}""",
        "screened",
        tags=ALL,
    ),
    "checks devices in Python": Case(
        *RELU,
        elementwise("v > 0 || v != v ? v : 0"),
        "screened",
        body="assert x.is_cuda and x.device.type == 'cuda' and torch.cuda.is_available(); torch.cuda.synchronize(); "
        "return extension.run(x.to('cuda').contiguous().cuda()) + torch.zeros(1, device=x.device)[0]",
        tags="executed",
    ),
    "half precision inside tensor cores": Case(
        "(x.half().float() @ x.half().float().t())",
        "16, 32",
        """
#include <mma.h>
#include <cuda_fp16.h>
using namespace nvcuda;
__global__ void k(const float* x, float* c, int n) {
    __shared__ half tile[16 * 16];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k0 = 0; k0 < n; k0 += 16) {
        for (int i = threadIdx.x; i < 256; i += 32) tile[i] = __float2half(x[i / 16 * n + k0 + i % 16]);
        __syncthreads();
        wmma::load_matrix_sync(a, tile, 16);
        wmma::load_matrix_sync(b, tile, 16);
        wmma::mma_sync(sum, a, b, sum);
        __syncthreads();
    }
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}
torch::Tensor run(torch::Tensor x) {
    auto c = torch::empty({16, 16}, x.options());
    k<<<1, 32>>>(x.data_ptr<float>(), c.data_ptr<float>(), x.size(1));
    return c;
}""",
        "screened",
        tags=ALL,
    ),
    "a constant table that is set once": Case(
        "x * torch.tensor([1.0, 2.0, 3.0, 4.0])",
        "10, 4",
        elementwise(
            "v * tables::factors[i % 4]",
            more="namespace tables { __constant__ float factors[4]; }",
            launch="static bool set = false; float table[4] = {1, 2, 3, 4}; "
            "if (!set) cudaMemcpyToSymbol(tables::factors, table, sizeof table); set = true; k<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);",
        ),
        "screened",
        tags=ALL,
    ),
    "a kernel found by its arguments": Case(
        "x * 3",
        "5, 5",
        elementwise("v * 3").replace(
            "__global__ void k(const float* x, float* y", "template <typename T> __global__ void k(const T* x, T* y"
        ),
        "screened",
        tags="executed",
    ),
}
RIGHT = "v > 0 || v != v ? v : 0"
CENTRED = """
template <typename T> __device__ T larger(T a, T b) { return a > b || a != a ? a : b; }
template <typename T, int THREADS> __global__ void row_max(const T* x, T* m, int n) {
    extern __shared__ T part[];
    T most = -1.0f / 0.0f;
    for (int i = threadIdx.x; i < n; i += THREADS) most = larger(x[blockIdx.x * n + i], most);
    part[threadIdx.x] = most;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] = larger(part[threadIdx.x], part[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) m[blockIdx.x] = part[0];
}
extern "C" __global__ void subtract(const float* x, const float* m, float* y, int n, double scale) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = (x[blockIdx.x * n + i] - m[blockIdx.x]) * (float)scale;
}"""
CENTRED_KERNELS = """self.row_max = torch.cuda._compile_kernel(CUDA, "row_max<float, 64>")
        self.subtract = torch.cuda._compile_kernel(CUDA, "subtract")
        self.row_max.set_shared_memory_config(64 * 1024)"""
CENTRED_FORWARD = """rows, n = x.shape
        m, y = x.new_empty(rows), torch.empty_like(x)
        self.row_max((rows, 1, 1), (64, 1, 1), [x, m, n], shared_mem=50 * 1024)
        self.subtract(grid=(rows, 1, 1), block=(32, 1, 1), args=[x, m, y, n, 2.0])
        return y"""
HONEST["kernels that Python launches"] = Case(
    "(x - x.amax(1, keepdim=True)) * 2", "12, 65", CENTRED, "screened", CENTRED_FORWARD,
    tags="executed custom_kernel race_free in_bounds", kernels=CENTRED_KERNELS,
)  # fmt: skip

TILES = """
constexpr int SIDE = 16;
extern "C" __global__ void square(const float* x, float* y, int n, int depth) {
    __shared__ float left[SIDE][SIDE], right[SIDE][SIDE + 1];
    int row = blockIdx.y * SIDE + threadIdx.y, column = blockIdx.x * SIDE + threadIdx.x;
    float sum = 0;
    for (int start = 0; start < depth; start += SIDE) {
        left[threadIdx.y][threadIdx.x] = x[row * depth + start + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = x[(blockIdx.x * SIDE + threadIdx.y) * depth + start + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < SIDE; k++) sum += left[threadIdx.y][k] * right[threadIdx.x][k];
        __syncthreads();
    }
    y[row * n + column] = sum;
}"""
HONEST["more work than the host can do, in tiles of the task's sizes"] = Case(
    "x @ x.mT", "512, 768", TILES, "screened",
    """n, depth = x.shape
        y = x.new_empty(n, n)
        self.square((n // 16, n // 16, 1), (16, 16, 1), [x, y, n, depth])
        return y""",
    says=("of smaller inputs (128x768 instead of 512x768)",),
    tags=ALL, kernels='self.square = torch.cuda._compile_kernel(CUDA, "square")',
)  # fmt: skip
HONEST["a size that is written into the kernel"] = Case(
    "x.sum(1)", "64, 70000",
    block_sum("__syncthreads();").partition("torch::Tensor")[0].replace("{", "{ n = 70000;", 1),
    "screened",
    """y = x.new_empty(64)
        self.row_sum((64, 1, 1), (64, 1, 1), [x, y, 70000])
        return y""",
    tags=ALL, kernels='self.row_sum = torch.cuda._compile_kernel(CUDA, "row_sum")',
)  # fmt: skip

CHOSEN = """
template <int N, typename T> __global__ void scaled(const T* x, T* y, int n) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * N;
    for (int j = 0; j < N && i + j < n; j++) y[i + j] = x[i + j] * 2;
}
extern "C" __global__ void copied(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x), z = torch::empty_like(x);
    int n = x.numel();
    void (*last)(const float*, float*, int) = copied;
    auto kernel = n % 2 == 0 ? scaled<2, float> : scaled<1, float>;
    kernel<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    last<<<(n + 63) / 64, 64>>>(y.data_ptr<float>(), z.data_ptr<float>(), n);
    return z;
}"""
HONEST["kernels that pointers name"] = Case("x * 2", "7, 32", CHOSEN, "screened", tags=ALL)
HONEST["a launch that leaves out template arguments"] = Case(
    "x * 2", "7, 32",
    CHOSEN.replace("int N, typename T", "typename T").replace("* N;", ";").replace("j < N", "j < 1")
    .replace("auto kernel = n % 2 == 0 ? scaled<2, float> : scaled<1, float>;", "").replace("kernel<<<", "scaled<<<"),
    "screened", tags="executed -race_free -in_bounds", shown=("line 19: scaled lacks template arguments",),
)  # fmt: skip

ATTACKS: dict[str, Case] = {
    "a barrier is missing": Case(
        "x.sum(1)", "9, 200", block_sum(""), "wrong_output", says=("data race", "row_sum", "cuda_sources line")
    ),
    "a barrier is missing in a template": Case(
        "x.sum(1)",
        "9, 200",
        block_sum("").replace("__global__", "template <int N> __global__").replace("<<<", "<1><<<"),
        "wrong_output",
        says=("data race between threads of a block", "row_sum<1>, cuda_sources line"),
    ),
    "shared memory that nobody writes": Case(
        "x.sum(1)",
        "9, 200",
        block_sum("__syncthreads();").replace("part[threadIdx.x] = sum;", ""),
        "wrong_output:nan",
        says=("shared memory, and what torch::empty makes, hold NaN until they are written",),
    ),
    "a race that gives the right result": Case(
        *RELU,
        elementwise(RIGHT).replace("int i =", "__shared__ int same; same = 1; int i ="),
        "crashed:race",
        says=("data race",),
    ),
    "a write behind the end": Case(
        *RELU, elementwise(RIGHT, bound="i <= n"), "crashed:out_of_bounds", says=("memory out of bounds", "line 8")
    ),
    "a read behind shared memory": Case(
        *RELU,
        elementwise(RIGHT)
        .replace(
            "int i =",
            "__shared__ float s[256]; s[threadIdx.x] = 1; __syncthreads(); float z = s[threadIdx.x + 1]; int i =",
        )
        .replace(f"y[i] = {RIGHT}", f"y[i] = z == 5 ? 0 : {RIGHT}"),
        "crashed:out_of_bounds",
    ),
    "barriers in branches": Case(
        *RELU,
        elementwise(RIGHT).replace(
            "int i =", "if (threadIdx.x < 32)\n__syncthreads();\nelse\n__syncthreads();\nint i ="
        ),
        "crashed",
        says=("barrier divergence", "threads wait at __syncthreads, line"),
    ),
    "a shuffle waits for lanes that left": Case(
        *RELU,
        elementwise(RIGHT).replace("int i =", "if (threadIdx.x % 32 > 15) return; __shfl_sync(~0u, 1, 0); int i ="),
        "crashed",
        says=("deadlock", "a shuffle, line"),
    ),
    "too many threads": Case(
        *RELU, elementwise(RIGHT).replace("256, 256>>>", "256, 2048>>>"), "crashed", says=("1024 is the most",)
    ),
    "leaves shared memory unset": Case(
        "x + 1",
        "4, 64",
        elementwise("v + s[threadIdx.x]").replace(
            "int i =",
            "__shared__ float s[256]; if (threadIdx.x < 128) s[threadIdx.x + 128] = 1; __syncthreads(); int i =",
        ),
        "wrong_output:nan",
    ),
    "leaves out what empty memory holds": Case(*RELU, elementwise(RIGHT, bound="i < n - 1"), "wrong_output:nan"),
    "counts on the order of blocks": Case(
        "torch.arange(8.0) + 0 * x",
        "8",
        """
__global__ void k(const float* x, float* y, float* count) {
    y[blockIdx.x] = atomicAdd(count, 1.0f) + 0 * x[blockIdx.x];
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x), count = torch::zeros({1}, x.options());
    k<<<x.numel(), 1>>>(x.data_ptr<float>(), y.data_ptr<float>(), count.data_ptr<float>());
    return y;
}""",
        "wrong_output:order",
        says=("order of blocks and threads",),
    ),
    "torch does the work": Case(
        *RELU,
        elementwise(RIGHT),
        "screened",
        body="return x.relu()",
        tags="torch_only -custom_kernel -race_free -in_bounds",
    ),
    "torch chooses which number a kernel has written": Case(
        "x.flatten().argmax(0)",
        "3, 5",
        """
__global__ void count(const float* x, int64_t* y, int n) { for (int i = threadIdx.x; i < n; i += 32) y[i] = i; }
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty({x.numel()}, x.options().dtype(torch::kInt64));
    count<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<int64_t>(), x.numel());
    return y;
}""",
        "screened",
        body="return extension.run(x)[x.flatten().argmax(0).item()]",
        tags="executed -custom_kernel -race_free -in_bounds",
        shown=("where the outputs lie in the memory of kernels depends on values",),
    ),
    "switches the checks off by a pasted word": Case(
        *RELU,
        "#define JOIN(a, b) a##b\n"
        + elementwise(RIGHT, bound="i <= n").replace(
            "__global__ void", "[[gnu::JOIN(no_sani, tize_address)]] __global__ void"
        ),
        "crashed:out_of_bounds",
    ),
    "torch does the work before a kernel": Case(
        *RELU,
        elementwise("v"),
        "screened",
        body="return extension.run(x.relu())",
        tags="executed -custom_kernel -race_free -in_bounds",
        shown=("argument 1 of k holds what something else has computed of the inputs",),
    ),
    "torch does the work behind a kernel": Case(
        *RELU,
        elementwise("v"),
        "screened",
        body="return extension.run(x).relu()",
        tags="-custom_kernel -race_free -in_bounds",
    ),
    "gives another form where its launches are recorded": Case(
        *RELU,
        elementwise(RIGHT),
        "screened",
        body="""import sys
        frame, callers = sys._getframe(), set()
        while frame is not None:
            callers.add(frame.f_code.co_name)
            frame = frame.f_back
        y = extension.run(x)
        return y[:1] if "_recorded_call" in callers else y""",
        tags="executed -custom_kernel -race_free -in_bounds",
        shown=("the outputs of the recorded call have another form",),
    ),
    "tells the emulation by a sanitizer": Case(
        *RELU,
        elementwise(RIGHT).replace("int i =", "\n#ifdef __SANITIZE_THREAD__\nreturn;\n#endif\nint i ="),
        "integrity:tells_emulation",
        says=("__SANITIZE_THREAD__",),
    ),
    "switches the checks off": Case(
        *RELU,
        elementwise(RIGHT).replace("__global__ void", "__attribute__((no_sanitize_thread)) __global__ void"),
        "integrity:tells_emulation",
    ),
    "takes the host for a device without architecture": Case(
        *RELU,
        elementwise(
            "ARCH < 700 ? v : 0", more="#ifdef __CUDA_ARCH__\n#define ARCH __CUDA_ARCH__\n#else\n#define ARCH 0\n#endif"
        ),
        "wrong_output:values",
    ),
    "Python launches a kernel with a number of another type": Case(
        "(x - x.amax(1, keepdim=True)) * 2",
        "12, 65",
        CENTRED.replace("double scale", "float scale"),
        "crashed",
        CENTRED_FORWARD,
        says=("argument 5 of subtract is a float, which torch passes as a double",),
        kernels=CENTRED_KERNELS,
    ),
    "a barrier is missing in a kernel that Python launches": Case(
        "(x - x.amax(1, keepdim=True)) * 2",
        "12, 65",
        CENTRED.replace("part[threadIdx.x + half]);\n        __syncthreads();", "part[threadIdx.x + half]);"),
        "wrong_output",
        CENTRED_FORWARD,
        says=("a data race",),
        kernels=CENTRED_KERNELS,
    ),
}
