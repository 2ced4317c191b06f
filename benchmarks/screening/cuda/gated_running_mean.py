"""Two running sums at once: segments of a sequence are added up side by side, then scanned again from their starts."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int FEATURES = 32, SEGMENTS = 16;  // a block takes FEATURES columns, whose lines are read whole

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__global__ void __launch_bounds__(FEATURES * SEGMENTS) running_mean_kernel(
    const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v, float* __restrict__ y,
    int length, int features, float eps) {
    __shared__ float weighted[SEGMENTS][FEATURES], total[SEGMENTS][FEATURES];
    const int column = blockIdx.x * FEATURES + threadIdx.x;
    const int each = (length + SEGMENTS - 1) / SEGMENTS;
    const int first = threadIdx.y * each, end = column < features ? min(length, first + each) : 0;
    const int64_t base = int64_t(blockIdx.y) * length * features + column;
    float gates = 0.0f, values = 0.0f;
    for (int step = first; step < end; step++) {
        const float gate = sigmoid(k[base + int64_t(step) * features]);
        gates += gate;
        values = fmaf(gate, v[base + int64_t(step) * features], values);
    }
    total[threadIdx.y][threadIdx.x] = gates;
    weighted[threadIdx.y][threadIdx.x] = values;
    __syncthreads();
    gates = values = 0.0f;
    for (int segment = 0; segment < threadIdx.y; segment++) {
        gates += total[segment][threadIdx.x];
        values += weighted[segment][threadIdx.x];
    }
    for (int step = first; step < end; step++) {
        const int64_t at = base + int64_t(step) * features;
        const float gate = sigmoid(k[at]);
        gates += gate;
        values = fmaf(gate, v[at], values);
        y[at] = sigmoid(q[at]) * values / (gates + eps);
    }
}

torch::Tensor running_mean(torch::Tensor q, torch::Tensor k, torch::Tensor v, double eps) {
    TORCH_CHECK(q.is_cuda() && q.scalar_type() == torch::kFloat32 && q.dim() == 3, "float32, 3 axes");
    TORCH_CHECK(q.sizes() == k.sizes() && q.sizes() == v.sizes(), "q, k and v have one shape");
    const auto a = q.contiguous(), b = k.contiguous(), c = v.contiguous();
    auto y = torch::empty_like(a);
    const int length = a.size(1), features = a.size(2);
    const dim3 grid((features + FEATURES - 1) / FEATURES, a.size(0));
    running_mean_kernel<<<grid, dim3(FEATURES, SEGMENTS), 0, at::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), y.data_ptr<float>(), length, features, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
CPP = "torch::Tensor running_mean(torch::Tensor q, torch::Tensor k, torch::Tensor v, double eps);"
extension = load_inline(
    name="gated_running_mean",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["running_mean"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, q, k, v):
        """Launch the kernel."""
        return extension.running_mean(q, k, v, self.eps)
