"""Residual addition and LayerNorm, a block a row: both inputs are read once, the sum waits in registers."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int THREADS = 256, WARPS = THREADS / 32, MOST = 16;  // a thread keeps at most MOST elements

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

__global__ void __launch_bounds__(THREADS) add_layer_norm_kernel(
    const float* __restrict__ x, const float* __restrict__ residual, const float* __restrict__ weight,
    const float* __restrict__ bias, float* __restrict__ normed, float* __restrict__ summed, int features, float eps) {
    __shared__ float partial[WARPS];
    const int64_t first = int64_t(blockIdx.x) * features;
    float kept[MOST], sum = 0.0f, squares = 0.0f;
    #pragma unroll
    for (int i = 0; i < MOST; i++) {
        const int column = threadIdx.x + i * THREADS;
        if (column < features) {
            kept[i] = x[first + column] + residual[first + column];
            summed[first + column] = kept[i];
            sum += kept[i];
        }
    }
    const float mean = block_sum(sum, partial) / features;
    #pragma unroll
    for (int i = 0; i < MOST; i++) {
        if (threadIdx.x + i * THREADS < features) {
            kept[i] -= mean;
            squares = fmaf(kept[i], kept[i], squares);
        }
    }
    const float spread = sqrtf(block_sum(squares, partial) / features + eps);
    #pragma unroll
    for (int i = 0; i < MOST; i++) {
        const int column = threadIdx.x + i * THREADS;
        if (column < features) normed[first + column] = kept[i] / spread * weight[column] + bias[column];
    }
}

std::vector<torch::Tensor> add_layer_norm(
    torch::Tensor x, torch::Tensor residual, torch::Tensor weight, torch::Tensor bias, double eps) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "x must be a float32 tensor on the GPU");
    TORCH_CHECK(x.sizes() == residual.sizes(), "x and residual have one shape");
    const auto a = x.contiguous(), b = residual.contiguous(), w = weight.contiguous(), c = bias.contiguous();
    auto normed = torch::empty_like(a), summed = torch::empty_like(a);
    const int features = a.size(-1);
    TORCH_CHECK(features <= THREADS * MOST, "rows of at most ", THREADS * MOST);
    add_layer_norm_kernel<<<a.numel() / features, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), w.data_ptr<float>(), c.data_ptr<float>(), normed.data_ptr<float>(),
        summed.data_ptr<float>(), features, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {normed, summed};
}
"""
CPP = """
std::vector<torch::Tensor> add_layer_norm(
    torch::Tensor x, torch::Tensor residual, torch::Tensor weight, torch::Tensor bias, double eps);
"""
extension = load_inline(
    name="add_layer_norm",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["add_layer_norm"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features) * 0.1)

    def forward(self, x, residual):
        """Launch the kernel, a block for each row."""
        normed, summed = extension.add_layer_norm(x, residual, self.weight, self.bias, self.eps)
        return normed, summed
