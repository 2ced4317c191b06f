"""Focal loss in one pass: maximum and sum of exponentials of a row grow together; no log-probabilities are stored."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

HIP = r"""
#include <torch/extension.h>
#include <hip/hip_runtime.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int THREADS = 256, MOST_WAVES = THREADS / 32;
constexpr float LOWEST = -3.402823466e38f;  // finite: logits of -infinity count nothing, infinity minus itself is NaN

template <int N>
struct __align__(4 * N) Vec { float x[N]; };  // loaded at once

// The highest logit, and the sum of exponentials below it. NaN passes by the maximum and goes through the sum.
struct Softmax { float top, sum; };

__device__ __forceinline__ Softmax joined(Softmax a, Softmax b) {
    const float top = fmaxf(a.top, b.top);
    return {top, a.sum * expf(a.top - top) + b.sum * expf(b.top - top)};
}

// A block a sample. N divides the number of classes. A target that is no class gives NaN.
template <int N>
__global__ void __launch_bounds__(THREADS) focal_kernel(
    const float* __restrict__ logits, const int64_t* __restrict__ targets, float* __restrict__ losses, int classes) {
    __shared__ Softmax partial[MOST_WAVES];
    const float* row = logits + int64_t(blockIdx.x) * classes;
    Softmax own = {LOWEST, 0.0f};
    for (int i = threadIdx.x; i < classes / N; i += THREADS) {
        const Vec<N> v = reinterpret_cast<const Vec<N>*>(row)[i];
        float top = own.top;
        #pragma unroll
        for (int j = 0; j < N; j++) top = fmaxf(top, v.x[j]);
        own.sum *= expf(own.top - top);
        #pragma unroll
        for (int j = 0; j < N; j++) own.sum += expf(v.x[j] - top);
        own.top = top;
    }
    #pragma unroll
    for (int offset = warpSize / 2; offset > 0; offset /= 2) {
        const Softmax other = {__shfl_xor(own.top, offset),
                               __shfl_xor(own.sum, offset)};
        own = joined(own, other);
    }
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = own;
    __syncthreads();
    if (threadIdx.x == 0) {
        #pragma unroll
        for (int wave = 1; wave < THREADS / warpSize; wave++) own = joined(own, partial[wave]);
        const int64_t target = targets[blockIdx.x];
        const float logit = target >= 0 && target < classes ? row[target] : NAN;
        const float log_probability = (logit - own.top) - logf(own.sum), rest = 1.0f - expf(log_probability);
        losses[blockIdx.x] = -(rest * rest) * log_probability;
    }
}

// One block, which adds up in the same order every time.
__global__ void __launch_bounds__(THREADS) mean_kernel(
    const float* __restrict__ losses, float* __restrict__ mean, int samples) {
    __shared__ double partial[MOST_WAVES];
    double sum = 0.0;
    for (int i = threadIdx.x; i < samples; i += THREADS) sum += losses[i];
    #pragma unroll
    for (int offset = warpSize / 2; offset > 0; offset /= 2) sum += __shfl_xor(sum, offset);
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int wave = 1; wave < THREADS / warpSize; wave++) sum += partial[wave];
        *mean = sum / samples;
    }
}

torch::Tensor focal_loss(torch::Tensor logits, torch::Tensor targets) {
    TORCH_CHECK(logits.is_cuda() && logits.scalar_type() == torch::kFloat32 && logits.dim() == 2, "a float32 matrix");
    TORCH_CHECK(targets.scalar_type() == torch::kInt64, "targets are int64");
    const auto input = logits.contiguous(), wanted = targets.contiguous();
    const int samples = input.size(0), classes = input.size(1);
    auto losses = torch::empty({samples}, input.options()), mean = torch::empty({}, input.options());
    const float* rows = input.data_ptr<float>();
    const auto stream = at::cuda::getCurrentCUDAStream();
    if (classes % 4 == 0 && reinterpret_cast<uintptr_t>(rows) % 16 == 0) {
        focal_kernel<4><<<samples, THREADS, 0, stream>>>(
            rows, wanted.data_ptr<int64_t>(), losses.data_ptr<float>(), classes);
    } else {
        focal_kernel<1><<<samples, THREADS, 0, stream>>>(
            rows, wanted.data_ptr<int64_t>(), losses.data_ptr<float>(), classes);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    mean_kernel<<<1, THREADS, 0, stream>>>(losses.data_ptr<float>(), mean.data_ptr<float>(), samples);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return mean;
}
"""
extension = load_inline(
    name="focal_loss",
    cpp_sources="torch::Tensor focal_loss(torch::Tensor logits, torch::Tensor targets);",
    cuda_sources=HIP,
    functions=["focal_loss"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """Kernels of its own."""

    def forward(self, logits, targets):
        """Launch the kernels."""
        return extension.focal_loss(logits, targets)
