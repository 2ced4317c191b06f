"""Mish in one pass: x · n / (n + 2) with n = e(e + 2), e = exp(x), so one exponential replaces exp, log1p and tanh."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

CPP = r"""
#include <cstdint>

// exp for -87 <= x <= 88, relative error 2e-7; no branch and no call, so that the loop vectorises. NaN stays NaN.
static inline float exp_poly(float x) {
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const float shifted = x * 1.44269504f + magic;
    const float n = shifted - magic;
    float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.3930436e-3f;
    p = p * r + 8.3633062e-3f;
    p = p * r + 4.1666638e-2f;
    p = p * r + 1.6666577e-1f;
    p = p * r + 5.0000000e-1f;
    p = p * r * r + r + 1.0f;
    const int32_t exponent = (__builtin_bit_cast(int32_t, shifted) << 23) + 0x3f800000;
    return p * __builtin_bit_cast(float, exponent);
}

extern "C" void mish(const float* __restrict__ x, float* __restrict__ y, int64_t count, int threads) {
    #pragma omp parallel for simd schedule(static) num_threads(threads) if (count > 16384)
    for (int64_t i = 0; i < count; ++i) {
        const float v = x[i];
        const float bounded = v > 20.0f ? 20.0f : v;  // tanh(softplus(20)) is 1 in float32
        const float e = bounded < -87.0f ? 0.0f : exp_poly(bounded < -87.0f ? -87.0f : bounded);
        const float n = e * (e + 2.0f);
        y[i] = v * (n / (n + 2.0f));
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
    loaded.mish.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]
    loaded.mish.restype = None
    return loaded


class ModelNew(nn.Module):
    """Drop-in for Model."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = build().mish

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: float32, any shape."""
        x = x.contiguous()
        y = torch.empty_like(x)
        self.kernel(x.data_ptr(), y.data_ptr(), x.numel(), torch.get_num_threads())
        return y
