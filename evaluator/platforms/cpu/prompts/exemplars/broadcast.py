"""The small operands stay in the nearest cache and the large one is never expanded: each element gives a row of the
result in one pass and one write.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

CPP = r"""
#include <cstdint>

// exp for -87 <= x <= 88, relative error 2e-7; no branch and no call, so that loops vectorise. NaN stays NaN.
static inline float exp_poly(float x) {
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const float shifted = x * 1.44269504f + magic;
    const float n = shifted - magic;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    const float p = (((1.3930436e-3f * r + 8.3633062e-3f) * r + 4.1666638e-2f) * r + 1.6666577e-1f) * r + 0.5f;
    const int32_t exponent = (__builtin_bit_cast(int32_t, shifted) << 23) + 0x3f800000;
    return (p * r * r + r + 1.0f) * __builtin_bit_cast(float, exponent);
}

extern "C" void radial(const float* __restrict__ x, const float* __restrict__ centres,
                       const float* __restrict__ widths, float* __restrict__ y,
                       int64_t rows, int64_t features, int threads) {
    #pragma omp parallel for schedule(static) num_threads(threads) if (rows * features > 16384)
    for (int64_t row = 0; row < rows; ++row) {
        const float value = x[row];  // constant along the inner loop
        float* __restrict__ out = y + row * features;
        #pragma omp simd
        for (int64_t k = 0; k < features; ++k) {
            const float scaled = (value - centres[k]) * widths[k];
            const float power = -scaled * scaled;  // never positive
            const bool tiny = power < -87.0f;  // false for NaN, which goes through exp_poly
            const float e = exp_poly(tiny ? -87.0f : power);
            out[k] = tiny ? 0.0f : e;
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
    loaded.radial.argtypes = [*[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 2, ctypes.c_int]
    loaded.radial.restype = None
    return loaded


class ModelNew(nn.Module):
    """Drop-in for Model: the same parameters, centres and widths."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.linspace(0.0, 5.0, features))
        self.widths = nn.Parameter(torch.rand(features) + 1.0)
        self.kernel = build().radial

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: float32, any shape."""
        x = x.contiguous()
        features = self.centres.numel()
        y = x.new_empty((*x.shape, features))
        pointers = [tensor.data_ptr() for tensor in (x, self.centres, self.widths, y)]
        self.kernel(*pointers, x.numel(), features, torch.get_num_threads())
        return y
