"""Only a row step needs the whole row: what comes before it is fused with its sum, what comes after it with
its scale, and the row stays in the nearest cache between the two loops.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

CPP = r"""
#include <cmath>
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

static inline float silu(float x) {
    const float power = -x < -87.0f ? -87.0f : -x;
    const float e = power > 88.0f ? INFINITY : exp_poly(power > 88.0f ? 88.0f : power);
    return x / (1.0f + e);
}

extern "C" void block(const float* __restrict__ x, const float* __restrict__ residual,
                      const float* __restrict__ bias, const float* __restrict__ weight, float* __restrict__ y,
                      int64_t rows, int64_t columns, float eps, int threads) {
    #pragma omp parallel for schedule(static) num_threads(threads) if (rows * columns > 16384)
    for (int64_t row = 0; row < rows; ++row) {
        const float* __restrict__ in = x + row * columns;
        const float* __restrict__ rest = residual + row * columns;
        float* __restrict__ out = y + row * columns;
        float squares = 0.0f;  // one partial sum a vector lane
        #pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < columns; ++i) {
            const float hidden = silu(in[i] + bias[i]);
            out[i] = hidden;  // the output's own row is the scratch memory
            squares += hidden * hidden;
        }
        const float length = std::sqrt(squares);
        const float scale = 1.0f / (length < eps ? eps : length);  // this order lets NaN through
        #pragma omp simd
        for (int64_t i = 0; i < columns; ++i) out[i] = rest[i] + weight[i] * (out[i] * scale);
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
    loaded.block.argtypes = [*[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 2, ctypes.c_float, ctypes.c_int]
    loaded.block.restype = None
    return loaded


class ModelNew(nn.Module):
    """Drop-in for Model: the same parameters, bias and weight."""

    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.bias = nn.Parameter(torch.randn(features) * 0.1)
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.kernel = build().block

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """x, residual: (..., features) in float32."""
        x, residual = x.contiguous(), residual.contiguous()
        y = torch.empty_like(x)
        columns = x.shape[-1]
        pointers = [tensor.data_ptr() for tensor in (x, residual, self.bias, self.weight, y)]
        self.kernel(*pointers, x.numel() // columns, columns, self.eps, torch.get_num_threads())
        return y
