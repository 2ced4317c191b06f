"""Two scans and what follows as one recurrence in registers: a step waits for the one before, so each thread walks
several rows at once, and their chains overlap. The total is kept in double, as cumsum keeps it.
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

constexpr int64_t ROWS = 8;

template <int64_t N>
static void walk(const float* __restrict__ x, float* __restrict__ y, int64_t length) {
    double total[N];
    float peak[N];
    for (int64_t r = 0; r < N; ++r) total[r] = 0.0, peak[r] = -INFINITY;
    for (int64_t t = 0; t < length; ++t) {
        #pragma GCC unroll 8
        for (int64_t r = 0; r < N; ++r) {
            total[r] += x[r * length + t];
            const float level = static_cast<float>(total[r]);
            peak[r] = level > peak[r] ? level : peak[r];
            y[r * length + t] = peak[r] - level;  // once a total is NaN it stays so, whatever the peak is
        }
    }
}

extern "C" void drawdown(const float* __restrict__ x, float* __restrict__ y, int64_t rows, int64_t length,
                         int threads) {
    const int64_t blocks = (rows + ROWS - 1) / ROWS;
    #pragma omp parallel for schedule(static) num_threads(threads) if (rows * length > 4096)
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = block * ROWS, last = std::min(first + ROWS, rows);
        if (last - first == ROWS) {
            walk<ROWS>(x + first * length, y + first * length, length);
        } else {
            for (int64_t row = first; row < last; ++row) walk<1>(x + row * length, y + row * length, length);
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
    loaded.drawdown.argtypes = [*[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_int]
    loaded.drawdown.restype = None
    return loaded


class ModelNew(nn.Module):
    """Drop-in for Model."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = build().drawdown

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., length) in float32."""
        x = x.contiguous()
        y = torch.empty_like(x)
        length = x.shape[-1]
        self.kernel(x.data_ptr(), y.data_ptr(), x.numel() // length, length, torch.get_num_threads())
        return y
