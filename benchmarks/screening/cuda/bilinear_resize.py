"""Upsampling by two and normalization: a thread reads 3 x 3 pixels and writes the 2 x 2 that they make."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int WIDTH = 32, HEIGHT = 8;

// A thread makes the output's pixels (2 i, 2 j) to (2 i + 1, 2 j + 1). Along each axis an even one lies a quarter of a
// pixel before the input's, an odd one a quarter behind; at an edge the one outside is replaced by the edge's own.
__global__ void __launch_bounds__(WIDTH * HEIGHT) resize_kernel(
    const float* __restrict__ images, const float* __restrict__ mean, const float* __restrict__ std,
    float* __restrict__ y, int channels, int height, int width) {
    const int j = blockIdx.x * WIDTH + threadIdx.x, i = blockIdx.y * HEIGHT + threadIdx.y;
    if (i >= height || j >= width) return;
    const int64_t plane = blockIdx.z;
    const float* in = images + plane * height * width;
    const float shift = mean[plane % channels], spread = std[plane % channels];
    // The first pixel takes itself and the next by 1 and 0, as the formula does: infinity there is not passed over.
    const int rows[2][2] = {{max(i - 1, 0), i > 0 ? i : min(1, height - 1)}, {i, min(i + 1, height - 1)}};
    const int columns[2][2] = {{max(j - 1, 0), j > 0 ? j : min(1, width - 1)}, {j, min(j + 1, width - 1)}};
    const float down[2] = {i > 0 ? 0.75f : 0.0f, 0.25f}, right[2] = {j > 0 ? 0.75f : 0.0f, 0.25f};
    float* out = y + plane * 4 * height * width + int64_t(2 * i) * 2 * width + 2 * j;
    #pragma unroll
    for (int a = 0; a < 2; a++) {
        float2 pair;
        #pragma unroll
        for (int b = 0; b < 2; b++) {
            const float* upper = in + int64_t(rows[a][0]) * width;
            const float* lower = in + int64_t(rows[a][1]) * width;
            const float top = (1.0f - right[b]) * upper[columns[b][0]] + right[b] * upper[columns[b][1]];
            const float bottom = (1.0f - right[b]) * lower[columns[b][0]] + right[b] * lower[columns[b][1]];
            const float value = ((1.0f - down[a]) * top + down[a] * bottom - shift) / spread;
            (b == 0 ? pair.x : pair.y) = value;
        }
        *reinterpret_cast<float2*>(out + a * 2 * width) = pair;
    }
}

torch::Tensor resize(torch::Tensor images, torch::Tensor mean, torch::Tensor std) {
    TORCH_CHECK(images.is_cuda() && images.scalar_type() == torch::kFloat32 && images.dim() == 4, "float32 images");
    const auto x = images.contiguous(), m = mean.contiguous(), s = std.contiguous();
    const int channels = x.size(1), height = x.size(2), width = x.size(3);
    auto y = torch::empty({x.size(0), x.size(1), 2 * x.size(2), 2 * x.size(3)}, x.options());
    const dim3 grid((width + WIDTH - 1) / WIDTH, (height + HEIGHT - 1) / HEIGHT, x.size(0) * channels);
    resize_kernel<<<grid, dim3(WIDTH, HEIGHT), 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), m.data_ptr<float>(), s.data_ptr<float>(), y.data_ptr<float>(), channels, height, width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
CPP = "torch::Tensor resize(torch::Tensor images, torch::Tensor mean, torch::Tensor std);"
extension = load_inline(
    name="bilinear_resize",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["resize"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, channels):
        super().__init__()
        self.mean = nn.Parameter(torch.rand(channels, 1, 1))
        self.std = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)

    def forward(self, images):
        """Launch the kernel."""
        return extension.resize(images, self.mean, self.std)
