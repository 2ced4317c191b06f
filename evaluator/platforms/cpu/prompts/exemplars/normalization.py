"""LayerNorm and ReLU fused: three passes over a row while it stays in the nearest cache, so memory is crossed once."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

CPP = r"""
#include <cmath>
#include <cstdint>

extern "C" void layer_norm_relu(const float* __restrict__ x, const float* __restrict__ weight,
                                const float* __restrict__ bias, float* __restrict__ y,
                                int64_t rows, int64_t columns, float eps, int threads) {
    #pragma omp parallel for schedule(static) num_threads(threads) if (rows * columns > 16384)
    for (int64_t row = 0; row < rows; ++row) {
        const float* __restrict__ in = x + row * columns;
        float* __restrict__ out = y + row * columns;
        float sum = 0.0f;  // `reduction` keeps one partial sum a vector lane, which also keeps it accurate
        #pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < columns; ++i) sum += in[i];
        const float mean = sum / static_cast<float>(columns);
        float squares = 0.0f;  // of centred values: E[x^2] - E[x]^2 would cancel
        #pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < columns; ++i) squares += (in[i] - mean) * (in[i] - mean);
        const float scale = 1.0f / std::sqrt(squares / static_cast<float>(columns) + eps);
        #pragma omp simd
        for (int64_t i = 0; i < columns; ++i) {
            const float v = (in[i] - mean) * scale * weight[i] + bias[i];
            out[i] = v < 0.0f ? 0.0f : v;  // this order lets NaN through, as relu does
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
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    loaded.layer_norm_relu.argtypes = [pointer, pointer, pointer, pointer, size, size, ctypes.c_float, ctypes.c_int]
    loaded.layer_norm_relu.restype = None
    return loaded


class ModelNew(nn.Module):
    """Drop-in for Model: the same constructor and the same parameter names, norm.weight and norm.bias."""

    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features, eps=eps)
        self.kernel = build().layer_norm_relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., features) in float32."""
        x = x.contiguous()
        y = torch.empty_like(x)
        columns = x.shape[-1]
        self.kernel(
            x.data_ptr(),
            self.norm.weight.data_ptr(),
            self.norm.bias.data_ptr(),
            y.data_ptr(),
            x.numel() // columns,
            columns,
            self.norm.eps,
            torch.get_num_threads(),
        )
        return y
