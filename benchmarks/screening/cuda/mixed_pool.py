"""Max and average pooling of the same windows in one pass, blended by a share for each channel."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int WIDTH = 32, HEIGHT = 8;

__global__ void __launch_bounds__(WIDTH * HEIGHT) mixed_pool_kernel(
    const float* __restrict__ x, const float* __restrict__ blend, float* __restrict__ y, int channels, int height,
    int width, int rows, int columns) {
    const int j = blockIdx.x * WIDTH + threadIdx.x, i = blockIdx.y * HEIGHT + threadIdx.y;
    if (i >= rows || j >= columns) return;
    const int64_t plane = blockIdx.z;
    const float* in = x + plane * height * width;
    const float share = 1.0f / (1.0f + expf(-blend[plane % channels]));
    float most = -INFINITY, sum = 0.0f;
    #pragma unroll
    for (int a = -1; a <= 1; a++) {
        #pragma unroll
        for (int b = -1; b <= 1; b++) {
            const int row = 2 * i + a, column = 2 * j + b;
            if (row < 0 || row >= height || column < 0 || column >= width) continue;
            const float value = in[int64_t(row) * width + column];
            most = value > most || value != value ? value : most;  // not fmaxf: NaN must stay NaN
            sum += value;
        }
    }
    // The average counts the padding's zeros, too.
    y[(plane * rows + i) * columns + j] = share * most + (1.0f - share) * (sum / 9.0f);
}

torch::Tensor mixed_pool(torch::Tensor x, torch::Tensor blend) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.dim() == 4, "float32 images on the GPU");
    const auto input = x.contiguous(), b = blend.contiguous();
    const int channels = input.size(1), height = input.size(2), width = input.size(3);
    const int rows = (height - 1) / 2 + 1, columns = (width - 1) / 2 + 1;
    auto y = torch::empty({input.size(0), input.size(1), rows, columns}, input.options());
    const dim3 grid((columns + WIDTH - 1) / WIDTH, (rows + HEIGHT - 1) / HEIGHT, input.size(0) * channels);
    mixed_pool_kernel<<<grid, dim3(WIDTH, HEIGHT), 0, at::cuda::getCurrentCUDAStream()>>>(
        input.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), channels, height, width, rows, columns);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
CPP = "torch::Tensor mixed_pool(torch::Tensor x, torch::Tensor blend);"
extension = load_inline(
    name="mixed_pool",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["mixed_pool"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, channels):
        super().__init__()
        self.blend = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        """Launch the kernel."""
        return extension.mixed_pool(x, self.blend)
