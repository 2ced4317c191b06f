"""A depthwise convolution is bound by memory, so it is written out, with what follows fused into its one write. Three
padded rows are kept in cache, so the inner loop has no borders.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

CPP = r"""
#include <algorithm>
#include <cstdint>
#include <vector>

extern "C" void depthwise(const float* __restrict__ x, const float* __restrict__ weight,
                          const float* __restrict__ scale, const float* __restrict__ shift, float* __restrict__ y,
                          int64_t planes, int64_t channels, int64_t height, int64_t width, int threads) {
    #pragma omp parallel num_threads(threads) if (planes * height * width > 16384)
    {
        const int64_t padded = width + 2;
        std::vector<float> ring(3 * padded);  // of the thread; the row r of the input is in the slot r % 3
        #pragma omp for schedule(static)
        for (int64_t plane = 0; plane < planes; ++plane) {
            const float* in = x + plane * height * width;
            const int64_t channel = plane % channels;
            const float a = scale[channel], b = shift[channel];
            float w[9];
            std::copy_n(weight + channel * 9, 9, w);
            const auto load = [&](int64_t row) {  // the columns at both ends stay zero
                float* to = ring.data() + (row % 3) * padded + 1;
                if (row < height) {
                    std::copy_n(in + row * width, width, to);
                } else {
                    std::fill_n(to, width, 0.0f);
                }
            };
            std::fill_n(ring.data() + 2 * padded, padded, 0.0f);  // the row above the first
            load(0);
            for (int64_t row = 0; row < height; ++row) {
                load(row + 1);
                const float* r0 = ring.data() + ((row + 2) % 3) * padded;
                const float* r1 = ring.data() + (row % 3) * padded;
                const float* r2 = ring.data() + ((row + 1) % 3) * padded;
                float* __restrict__ out = y + (plane * height + row) * width;
                #pragma omp simd
                for (int64_t i = 0; i < width; ++i) {
                    const float top = w[0] * r0[i] + w[1] * r0[i + 1] + w[2] * r0[i + 2];
                    const float middle = w[3] * r1[i] + w[4] * r1[i + 1] + w[5] * r1[i + 2];
                    const float bottom = w[6] * r2[i] + w[7] * r2[i + 1] + w[8] * r2[i + 2];
                    const float v = a * (top + middle + bottom) + b;
                    float gate = v + 3.0f;
                    gate = gate < 0.0f ? 0.0f : gate;  // this order lets NaN through
                    gate = gate > 6.0f ? 6.0f : gate;
                    out[i] = v * gate * (1.0f / 6.0f);  // a division would cost more than all the rest
                }
            }
        }
    }
}
"""


def build() -> ctypes.CDLL:
    """Compile the kernel; torch is imported by now, so the library shares its OpenMP threads."""
    folder = Path(tempfile.mkdtemp())
    source, library = folder / "kernel.cpp", folder / "kernel.so"
    source.write_text(CPP)
    flags = ["-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-std=c++17"]
    subprocess.run(["g++", *flags, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.depthwise.argtypes = [*[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 4, ctypes.c_int]
    loaded.depthwise.restype = None
    return loaded


class ModelNew(nn.Module):
    """Drop-in for Model: the same parameters, conv.weight, scale and shift."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels, bias=False)
        self.scale = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)
        self.shift = nn.Parameter(torch.randn(channels, 1, 1) * 0.1)
        self.kernel = build().depthwise

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, channels, height, width) in float32."""
        x = x.contiguous()
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        pointers = [tensor.data_ptr() for tensor in (x, self.conv.weight, self.scale, self.shift, y)]
        self.kernel(*pointers, batch * channels, channels, height, width, torch.get_num_threads())
        return y
