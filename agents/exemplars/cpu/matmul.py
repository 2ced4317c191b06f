"""The product is left to torch's tuned library; all that follows it is one pass over the product, in place. With a
small inner dimension, the passes over memory are what costs.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

CPP = r"""
#include <cstdint>

extern "C" void epilogue(float* __restrict__ y, const float* __restrict__ bias, const float* __restrict__ gate,
                         const float* __restrict__ residual, int64_t rows, int64_t columns, int threads) {
    #pragma omp parallel for schedule(static) num_threads(threads) if (rows * columns > 16384)
    for (int64_t row = 0; row < rows; ++row) {
        float* __restrict__ out = y + row * columns;
        const float* __restrict__ open = gate + row * columns;
        const float* __restrict__ rest = residual + row * columns;
        #pragma omp simd
        for (int64_t i = 0; i < columns; ++i) {
            const float v = out[i] + bias[i];
            const float r = v < 0.0f ? 0.0f : v;  // this order lets NaN through, as relu does
            out[i] = rest[i] + open[i] * (r * r);
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
    loaded.epilogue.argtypes = [*[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 2, ctypes.c_int]
    loaded.epilogue.restype = None
    return loaded


class ModelNew(nn.Module):
    """Drop-in for Model: the same parameters, linear.weight and linear.bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.kernel = build().epilogue

    def forward(self, x: torch.Tensor, gate: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """x: (..., inputs); gate, residual: (..., outputs); float32."""
        gate, residual = gate.contiguous(), residual.contiguous()
        y = torch.matmul(x, self.linear.weight.t()).contiguous()
        columns = y.shape[-1]
        pointers = [tensor.data_ptr() for tensor in (y, self.linear.bias, gate, residual)]
        self.kernel(*pointers, y.numel() // columns, columns, torch.get_num_threads())
        return y
