"""LayerNorm, shift, scale, GELU and gated residual of a token in one block; the row waits in shared memory."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int THREADS = 256, WARPS = THREADS / 32;

// The sum over a block, for each of its threads. `partial` has a place for each warp.
__device__ __forceinline__ float block_sum(float value, float* partial) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    __syncthreads();  // before `partial` of an earlier call is overwritten
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    #pragma unroll
    for (int warp = 0; warp < WARPS; warp++) sum += partial[warp];
    return sum;
}

__device__ __forceinline__ float gelu(float x) {
    return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

// A block a token. Tokens of one sample share its shift, scale and gate, which stay in the L2 cache.
__global__ void __launch_bounds__(THREADS) adaptive_norm_kernel(
    const float* __restrict__ x, const float* __restrict__ shift, const float* __restrict__ scale,
    const float* __restrict__ gate, float* __restrict__ y, int tokens, int features, float eps) {
    extern __shared__ float row[];
    __shared__ float partial[WARPS];
    const int64_t token = blockIdx.x, sample = token / tokens;
    const float* in = x + token * features;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < features; i += THREADS) sum += row[i] = in[i];
    const float mean = block_sum(sum, partial) / features;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < features; i += THREADS) {  // each thread reads what it has written itself
        const float centred = row[i] - mean;
        squares = fmaf(centred, centred, squares);
    }
    const float factor = rsqrtf(block_sum(squares, partial) / features + eps);
    for (int i = threadIdx.x; i < features; i += THREADS) {
        const int64_t at = sample * features + i;
        const float modulated = (row[i] - mean) * factor * (1.0f + scale[at]) + shift[at];
        y[token * features + i] = row[i] + gate[at] * gelu(modulated);
    }
}

torch::Tensor adaptive_norm(torch::Tensor x, torch::Tensor shift, torch::Tensor scale, torch::Tensor gate, double eps) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.dim() == 3, "float32, 3 axes");
    const auto input = x.contiguous(), s = shift.contiguous(), c = scale.contiguous(), g = gate.contiguous();
    auto y = torch::empty_like(input);
    const int tokens = input.size(1), features = input.size(2);
    const size_t bytes = features * sizeof(float);
    TORCH_CHECK(bytes <= 48 * 1024 - 1024, "a row must fit into shared memory");
    adaptive_norm_kernel<<<input.size(0) * tokens, THREADS, bytes, at::cuda::getCurrentCUDAStream()>>>(
        input.data_ptr<float>(), s.data_ptr<float>(), c.data_ptr<float>(), g.data_ptr<float>(), y.data_ptr<float>(),
        tokens, features, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
CPP = """
torch::Tensor adaptive_norm(
    torch::Tensor x, torch::Tensor shift, torch::Tensor scale, torch::Tensor gate, double eps);
"""
extension = load_inline(
    name="adaptive_norm_block",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["adaptive_norm"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, features, eps):
        super().__init__()
        self.features, self.eps = features, eps

    def forward(self, x, shift, scale, gate):
        """Launch the kernel, a block for each token."""
        return extension.adaptive_norm(x, shift, scale, gate, self.eps)
