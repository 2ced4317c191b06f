# honest: softmax of GELU over 8,192 columns, written plainly: libm's expf and erff, one float32 sum by `omp simd`
# tag: custom_kernel
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(F.gelu(x), dim=-1)


def get_inputs():
    return [torch.randn(16, 8192)]


def get_init_inputs():
    return []


# --- candidate ---
import ctypes
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <cmath>
extern "C" void run(const float* x, float* out, long rows, long columns) {
#pragma omp parallel for
    for (long row = 0; row < rows; row++) {
        const float* from = x + row * columns;
        float* to = out + row * columns;
        for (long i = 0; i < columns; i++) to[i] = 0.5f * from[i] * (1.0f + erff(from[i] * 0.70710678f));
        float largest = to[0];
        for (long i = 0; i < columns; i++)
            if (!(to[i] <= largest)) largest = to[i];
        float total = 0.0f;
#pragma omp simd reduction(+ : total)
        for (long i = 0; i < columns; i++) {
            to[i] = expf(to[i] - largest);
            total += to[i];
        }
        for (long i = 0; i < columns; i++) to[i] /= total;
    }
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        folder = tempfile.mkdtemp()
        with open(f"{folder}/k.cpp", "w") as file:
            file.write(SOURCE)
        flags = ["-O2", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run(["g++", *flags, f"{folder}/k.cpp", "-o", f"{folder}/k.so"], check=True)
        self.run = ctypes.CDLL(f"{folder}/k.so").run

    def forward(self, x):
        out = torch.empty_like(x)
        at = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, out)]
        self.run(*at, ctypes.c_long(x.shape[0]), ctypes.c_long(x.shape[1]))
        return out
