"""Radial basis features: a thread keeps four features in registers and goes from number to number; `float4` stores."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

HIP = r"""
#include <torch/extension.h>
#include <hip/hip_runtime.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int THREADS = 256;

template <int N>
struct __align__(4 * N) Vec { float x[N]; };  // loaded and stored at once

// Threads of the grid lie over rows of `parts` threads, N features each. All but the last few fill whole rows; those
// step by as many rows as there are, so that a thread divides once and has the same features in each row.
template <int N>
__global__ void __launch_bounds__(THREADS) radial_kernel(
    const float* __restrict__ x, const float* __restrict__ centres, const float* __restrict__ widths,
    float* __restrict__ y, int64_t rows, int parts) {
    const int64_t thread = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    const int64_t step = int64_t(gridDim.x) * THREADS / parts;
    const int part = thread % parts;
    const int64_t first = thread / parts;
    if (first >= step) return;
    const Vec<N> centre = reinterpret_cast<const Vec<N>*>(centres)[part];
    const Vec<N> width = reinterpret_cast<const Vec<N>*>(widths)[part];
    for (int64_t row = first; row < rows; row += step) {
        const float value = x[row];
        Vec<N> made;
        #pragma unroll
        for (int i = 0; i < N; i++) {
            const float scaled = (value - centre.x[i]) * width.x[i];
            made.x[i] = expf(-scaled * scaled);
        }
        reinterpret_cast<Vec<N>*>(y)[row * parts + part] = made;
    }
}

bool is_aligned(const torch::Tensor& x) { return reinterpret_cast<uintptr_t>(x.data_ptr<float>()) % 16 == 0; }

torch::Tensor radial(torch::Tensor x, torch::Tensor centres, torch::Tensor widths) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "x must be a float32 tensor on the GPU");
    const auto input = x.contiguous(), middle = centres.contiguous(), factor = widths.contiguous();
    const int features = middle.numel();
    auto sizes = input.sizes().vec();
    sizes.push_back(features);
    auto y = torch::empty(sizes, input.options());
    const bool wide = features % 4 == 0 && is_aligned(middle) && is_aligned(factor);
    const int parts = wide ? features / 4 : features;
    const int64_t rows = input.numel(), needed = (rows * parts + THREADS - 1) / THREADS;
    const int64_t most = 8 * at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
    const int blocks = std::max<int64_t>(std::min(needed, most), (parts + THREADS - 1) / THREADS);  // a row at least
    const auto stream = at::cuda::getCurrentCUDAStream();
    if (wide) {
        radial_kernel<4><<<blocks, THREADS, 0, stream>>>(input.data_ptr<float>(), middle.data_ptr<float>(),
                                                         factor.data_ptr<float>(), y.data_ptr<float>(), rows, parts);
    } else {
        radial_kernel<1><<<blocks, THREADS, 0, stream>>>(input.data_ptr<float>(), middle.data_ptr<float>(),
                                                         factor.data_ptr<float>(), y.data_ptr<float>(), rows, parts);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
extension = load_inline(
    name="radial",
    cpp_sources="torch::Tensor radial(torch::Tensor x, torch::Tensor centres, torch::Tensor widths);",
    cuda_sources=HIP,
    functions=["radial"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and a kernel of its own."""

    def __init__(self, features):
        super().__init__()
        self.centres = nn.Parameter(torch.linspace(0.0, 5.0, features))
        self.widths = nn.Parameter(torch.rand(features) + 1.0)

    def forward(self, x):
        """Launch the kernel."""
        return extension.radial(x, self.centres, self.widths)
