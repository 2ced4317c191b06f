"""GELU by its tanh formula: one pass, sixteen bytes a thread, in a grid-stride loop."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int THREADS = 256;

__device__ __forceinline__ float gelu(float x) {
    const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
}

// The first 4 * fours elements by float4, those behind them one by one.
__global__ void __launch_bounds__(THREADS) gelu_kernel(
    const float* __restrict__ x, float* __restrict__ y, int64_t count, int64_t fours) {
    const int64_t first = int64_t(blockIdx.x) * THREADS + threadIdx.x, step = int64_t(gridDim.x) * THREADS;
    for (int64_t i = first; i < fours; i += step) {
        const float4 v = reinterpret_cast<const float4*>(x)[i];
        reinterpret_cast<float4*>(y)[i] = make_float4(gelu(v.x), gelu(v.y), gelu(v.z), gelu(v.w));
    }
    for (int64_t i = 4 * fours + first; i < count; i += step) y[i] = gelu(x[i]);
}

torch::Tensor gelu_tanh(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "x must be a float32 tensor on the GPU");
    const auto input = x.contiguous();
    auto y = torch::empty_like(input);
    const float* from = input.data_ptr<float>();
    const int64_t count = input.numel();
    const int64_t fours = reinterpret_cast<uintptr_t>(from) % 16 == 0 ? count / 4 : 0;
    const int64_t most = 16 * at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
    const int blocks = std::min<int64_t>((fours > 0 ? fours : count) / THREADS + 1, most);
    gelu_kernel<<<blocks, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(from, y.data_ptr<float>(), count, fours);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
CPP = "torch::Tensor gelu_tanh(torch::Tensor x);"
extension = load_inline(
    name="gelu_tanh",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["gelu_tanh"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """Kernels of its own."""

    def forward(self, x):
        """Launch the kernel."""
        return extension.gelu_tanh(x)
