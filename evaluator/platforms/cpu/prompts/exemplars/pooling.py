"""A maximum over a square is one over columns of maxima over rows: 8 comparisons instead of 24. A padded copy of the
plane stays in cache, so that no loop has borders; what follows is fused into the second step.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

CPP = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

constexpr int64_t WINDOW = 5, PAD = WINDOW / 2;

// NaN wins from either side, as in max_pool2d; two selects without a branch, so that loops vectorise.
static inline float highest(float a, float b) {
    const float c = a < b ? b : a;
    return b != b ? b : c;
}

static inline float highest_of_window(const float* at, int64_t stride) {
    const float left = highest(at[0], at[stride]), right = highest(at[3 * stride], at[4 * stride]);
    return highest(highest(left, at[2 * stride]), right);
}

extern "C" void peaks(const float* __restrict__ x, float* __restrict__ y,
                      int64_t planes, int64_t height, int64_t width, int threads) {
    #pragma omp parallel num_threads(threads) if (planes * height * width > 16384)
    {
        std::vector<float> line(width + 2 * PAD, -INFINITY);  // both are the thread's, their borders stay as they are
        std::vector<float> rows((height + 2 * PAD) * width, -INFINITY);
        #pragma omp for schedule(static)
        for (int64_t plane = 0; plane < planes; ++plane) {
            const float* __restrict__ in = x + plane * height * width;
            float* __restrict__ out = y + plane * height * width;
            for (int64_t row = 0; row < height; ++row) {
                std::copy_n(in + row * width, width, line.data() + PAD);
                const float* from = line.data();
                float* __restrict__ to = rows.data() + (row + PAD) * width;
                #pragma omp simd
                for (int64_t i = 0; i < width; ++i) to[i] = highest_of_window(from + i, 1);
            }
            const float* from = rows.data();
            #pragma omp simd
            for (int64_t i = 0; i < height * width; ++i) {  // all rows in one loop: they are next to each other
                out[i] = in[i] == highest_of_window(from + i, width) ? in[i] : 0.0f;
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
    loaded.peaks.argtypes = [*[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3, ctypes.c_int]
    loaded.peaks.restype = None
    return loaded


class ModelNew(nn.Module):
    """Drop-in for Model."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = build().peaks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, channels, height, width) in float32."""
        x = x.contiguous()
        y = torch.empty_like(x)
        height, width = x.shape[-2:]
        planes = x.numel() // (height * width)
        self.kernel(x.data_ptr(), y.data_ptr(), planes, height, width, torch.get_num_threads())
        return y
