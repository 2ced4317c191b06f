"""A candidate for rmsnorm_gelu written by hand: each row is read once from memory and written once.

C++ behind `extern "C"`, built by g++ alone when the module is made and called through ctypes.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>

// exp(y) for y <= 0: 2^n times a Taylor polynomial of degree 7 on [-ln2/2, ln2/2], within 2e-7 of the true value.
static inline float exp_of_negative(float y) {
    y = y > -87.0f ? y : -87.0f;
    float shifted = y * 1.44269504f + 12582912.0f;  // adding 1.5 * 2^23 rounds to an integer, kept in the low bits
    int32_t bits;
    std::memcpy(&bits, &shifted, 4);
    float n = shifted - 12582912.0f;
    float r = (y - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts, so that n ln 2 loses no digits
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t scale_bits = (bits + (127 - 0x4B400000)) << 23;
    float scale;
    std::memcpy(&scale, &scale_bits, 4);
    return p * scale;
}

// x Phi(x); the upper tail of Phi is Abramowitz and Stegun 7.1.26 at |x| / sqrt(2), off by at most 7.5e-8.
static inline float gelu(float x) {
    float z = std::fabs(x);
    float t = 1.0f / (1.0f + 0.3275911f * 0.70710678f * z);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float tail = 0.5f * p * t * exp_of_negative(-0.5f * z * z);
    return x * (x < 0.0f ? tail : 1.0f - tail);
}

extern "C" void rmsnorm_gelu(const float* x, const float* weight, float* out, int64_t rows, int64_t columns,
                             float eps) {
    #pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
        const float* from = x + row * columns;
        float* to = out + row * columns;
        float squares = 0.0f;
        #pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < columns; ++i) squares += from[i] * from[i];
        const float factor = 1.0f / std::sqrt(squares / columns + eps);
        #pragma omp simd
        for (int64_t i = 0; i < columns; ++i) to[i] = gelu(from[i] * factor * weight[i]);
    }
}
"""


def build(source):
    """Compile C++ into a shared library and load it."""
    folder = Path(tempfile.mkdtemp(prefix="rmsnorm_gelu_"))
    library = folder / "kernel.so"
    (folder / "kernel.cpp").write_text(source)
    # PyTorch has loaded its own libgomp. Linking to that very file keeps one pool of threads in the process, not two.
    torch_library = Path(torch.__file__).parent / "lib"
    openmp = [str(path) for path in sorted(torch_library.glob("libgomp*.so*"))[:1]]
    flags = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-shared", "-fPIC"]
    command = ["g++", *flags, "-o", str(library), str(folder / "kernel.cpp"), "-Wl,--as-needed", *openmp]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"g++ failed:\n{done.stderr}")
    return ctypes.CDLL(str(library))


class ModelNew(nn.Module):
    """Drop-in for Model: the same arguments and the same parameter."""

    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.kernel = build(SOURCE).rmsnorm_gelu
        self.kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 2 + [ctypes.c_float]
        self.kernel.restype = None

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        columns = x.shape[-1]
        rows = x.numel() // columns
        self.kernel(x.data_ptr(), self.weight.data_ptr(), out.data_ptr(), rows, columns, self.eps)
        return out
