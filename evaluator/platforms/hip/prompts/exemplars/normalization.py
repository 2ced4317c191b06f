"""Layer normalization: a block a row, sums in registers, one value a wavefront in shared memory."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

HIP = r"""
#include <torch/extension.h>
#include <hip/hip_runtime.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int THREADS = 256, MOST_WAVES = THREADS / 32;

__device__ __forceinline__ float wave_sum(float value) {
    #pragma unroll
    for (int offset = warpSize / 2; offset > 0; offset /= 2) value += __shfl_xor(value, offset);
    return value;
}

// The sum over the block, for every thread. The barrier at its end lets `partial` be used again.
__device__ float block_sum(float value, float* partial) {
    value = wave_sum(value);
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = value;
    __syncthreads();
    float sum = 0.0f;
    #pragma unroll
    for (int wave = 0; wave < THREADS / warpSize; wave++) sum += partial[wave];
    __syncthreads();
    return sum;
}

__global__ void __launch_bounds__(THREADS) layer_norm_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ y, int features, float eps) {
    __shared__ float partial[MOST_WAVES];
    const float* row = x + int64_t(blockIdx.x) * features;
    float* out = y + int64_t(blockIdx.x) * features;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < features; i += THREADS) sum += row[i];
    const float mean = block_sum(sum, partial) / features;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < features; i += THREADS) squares += (row[i] - mean) * (row[i] - mean);
    const float scale = rsqrtf(block_sum(squares, partial) / features + eps);
    for (int i = threadIdx.x; i < features; i += THREADS) out[i] = (row[i] - mean) * scale * weight[i] + bias[i];
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "x must be a float32 tensor on the GPU");
    const auto input = x.contiguous();
    auto y = torch::empty_like(input);
    const int features = input.size(-1);
    const int rows = input.numel() / features;
    layer_norm_kernel<<<rows, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
        input.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), features, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
extension = load_inline(
    name="layer_norm",
    cpp_sources="torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);",
    cuda_sources=HIP,
    functions=["layer_norm"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and a kernel of its own."""

    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        """Launch the kernel."""
        return extension.layer_norm(x, self.norm.weight, self.norm.bias, self.norm.eps)
