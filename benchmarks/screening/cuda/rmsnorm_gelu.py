"""RMSNorm and the exact GELU, a block a row: read twice, by sixteen bytes a thread, the second time from a cache."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int THREADS = 256, WARPS = THREADS / 32;

template <int N>
struct __align__(4 * N) Vec { float x[N]; };  // loaded and stored at once

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

template <int N>
__global__ void __launch_bounds__(THREADS) rmsnorm_gelu_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ y, int features, float eps) {
    __shared__ float partial[WARPS];
    const int64_t first = int64_t(blockIdx.x) * features;
    const Vec<N>* in = reinterpret_cast<const Vec<N>*>(x + first);
    float squares = 0.0f;
    for (int i = threadIdx.x; i < features / N; i += THREADS) {
        const Vec<N> v = in[i];
        #pragma unroll
        for (int j = 0; j < N; j++) squares = fmaf(v.x[j], v.x[j], squares);
    }
    const float scale = rsqrtf(block_sum(squares, partial) / features + eps);
    for (int i = threadIdx.x; i < features / N; i += THREADS) {
        Vec<N> v = in[i];
        const Vec<N> w = reinterpret_cast<const Vec<N>*>(weight)[i];
        #pragma unroll
        for (int j = 0; j < N; j++) {
            const float normed = v.x[j] * scale * w.x[j];
            v.x[j] = 0.5f * normed * (1.0f + erff(normed * 0.7071067811865476f));
        }
        reinterpret_cast<Vec<N>*>(y + first)[i] = v;
    }
}

bool is_aligned(const torch::Tensor& x) { return reinterpret_cast<uintptr_t>(x.data_ptr<float>()) % 16 == 0; }

torch::Tensor rmsnorm_gelu(torch::Tensor x, torch::Tensor weight, double eps) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "x must be a float32 tensor on the GPU");
    const auto input = x.contiguous(), w = weight.contiguous();
    auto y = torch::empty_like(input);
    const int features = input.size(-1);
    auto kernel = features % 4 == 0 && is_aligned(input) && is_aligned(w) ? rmsnorm_gelu_kernel<4>
                                                                          : rmsnorm_gelu_kernel<1>;
    kernel<<<input.numel() / features, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
        input.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), features, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
CPP = "torch::Tensor rmsnorm_gelu(torch::Tensor x, torch::Tensor weight, double eps);"
extension = load_inline(
    name="rmsnorm_gelu",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["rmsnorm_gelu"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        """Launch the kernel, a block for each row."""
        return extension.rmsnorm_gelu(x, self.weight, self.eps)
