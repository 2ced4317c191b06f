"""Five operators in one kernel: a block a row, read once and kept in shared memory until its length is known."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

HIP = r"""
#include <torch/extension.h>
#include <hip/hip_runtime.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int THREADS = 256, MOST_WAVES = THREADS / 32;
constexpr int KEPT = 8192;  // floats of a row in shared memory; what lies behind them is computed twice

template <int N>
struct __align__(4 * N) Vec { float x[N]; };  // loaded and stored at once

template <int N>
__device__ __forceinline__ Vec<N> activated(const Vec<N>* __restrict__ in, const Vec<N>* __restrict__ shift, int i) {
    Vec<N> v = in[i];
    const Vec<N> s = shift[i];
    #pragma unroll
    for (int j = 0; j < N; j++) {
        v.x[j] += s.x[j];
        v.x[j] /= 1.0f + expf(-v.x[j]);
    }
    return v;
}

// N divides the number of features. A thread reads from `kept` what it has written itself, so no barrier is between.
template <int N>
__global__ void __launch_bounds__(THREADS) unit_rows_kernel(
    const float* __restrict__ x, const float* __restrict__ bias, const float* __restrict__ weight,
    const float* __restrict__ residual, float* __restrict__ y, int features, float eps) {
    extern __shared__ float4 memory[];
    __shared__ float partial[MOST_WAVES];
    Vec<N>* kept = reinterpret_cast<Vec<N>*>(memory);
    const int64_t row = int64_t(blockIdx.x) * features;
    const Vec<N>* in = reinterpret_cast<const Vec<N>*>(x + row);
    const Vec<N>* shift = reinterpret_cast<const Vec<N>*>(bias);
    float squares = 0.0f;
    for (int i = threadIdx.x; i < features / N; i += THREADS) {
        const Vec<N> hidden = activated<N>(in, shift, i);
        #pragma unroll
        for (int j = 0; j < N; j++) squares = fmaf(hidden.x[j], hidden.x[j], squares);
        if (i < KEPT / N) kept[i] = hidden;
    }
    #pragma unroll
    for (int offset = warpSize / 2; offset > 0; offset /= 2) squares += __shfl_xor(squares, offset);
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = squares;
    __syncthreads();
    float sum = 0.0f;
    #pragma unroll
    for (int wave = 0; wave < THREADS / warpSize; wave++) sum += partial[wave];
    const float length = sqrtf(sum), scale = 1.0f / (length < eps ? eps : length);  // not fmaxf: NaN must stay NaN
    for (int i = threadIdx.x; i < features / N; i += THREADS) {
        const Vec<N> hidden = i < KEPT / N ? kept[i] : activated<N>(in, shift, i);
        const Vec<N> factor = reinterpret_cast<const Vec<N>*>(weight)[i];
        Vec<N> out = reinterpret_cast<const Vec<N>*>(residual + row)[i];
        #pragma unroll
        for (int j = 0; j < N; j++) out.x[j] += factor.x[j] * (hidden.x[j] * scale);
        reinterpret_cast<Vec<N>*>(y + row)[i] = out;
    }
}

bool is_aligned(const torch::Tensor& x) { return reinterpret_cast<uintptr_t>(x.data_ptr<float>()) % 16 == 0; }

torch::Tensor unit_rows(torch::Tensor x, torch::Tensor bias, torch::Tensor weight, torch::Tensor residual, double eps) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "x must be a float32 tensor on the GPU");
    TORCH_CHECK(x.sizes() == residual.sizes(), "x and residual must have one shape");
    const auto input = x.contiguous(), rest = residual.contiguous(), b = bias.contiguous(), w = weight.contiguous();
    auto y = torch::empty_like(input);
    const int features = input.size(-1), bytes = std::min(features, KEPT) * sizeof(float);
    const int64_t rows = input.numel() / features;
    const auto stream = at::cuda::getCurrentCUDAStream();
    if (features % 4 == 0 && is_aligned(input) && is_aligned(rest) && is_aligned(b) && is_aligned(w)) {
        unit_rows_kernel<4><<<rows, THREADS, bytes, stream>>>(
            input.data_ptr<float>(), b.data_ptr<float>(), w.data_ptr<float>(), rest.data_ptr<float>(),
            y.data_ptr<float>(), features, eps);
    } else {
        unit_rows_kernel<1><<<rows, THREADS, bytes, stream>>>(
            input.data_ptr<float>(), b.data_ptr<float>(), w.data_ptr<float>(), rest.data_ptr<float>(),
            y.data_ptr<float>(), features, eps);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
CPP = """
torch::Tensor unit_rows(torch::Tensor x, torch::Tensor bias, torch::Tensor weight, torch::Tensor residual, double eps);
"""
extension = load_inline(
    name="unit_rows",
    cpp_sources=CPP,
    cuda_sources=HIP,
    functions=["unit_rows"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and a kernel of its own."""

    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.bias = nn.Parameter(torch.randn(features) * 0.1)
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x, residual):
        """Launch the kernel."""
        return extension.unit_rows(x, self.bias, self.weight, residual, self.eps)
