# honest: C++ through ctypes, built at construction
# tag: custom_kernel
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * x + 1


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return []


# --- candidate ---
import ctypes
import subprocess
import tempfile

import torch

SOURCE = r"""
extern "C" void square_plus_one(const float* x, float* out, long n) {
#pragma omp parallel for simd
    for (long i = 0; i < n; i++) out[i] = x[i] * x[i] + 1.0f;
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        folder = tempfile.mkdtemp()
        with open(f"{folder}/k.cpp", "w") as file:
            file.write(SOURCE)
        flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run(["g++", *flags, f"{folder}/k.cpp", "-o", f"{folder}/k.so"], check=True)
        self.library = ctypes.CDLL(f"{folder}/k.so")

    def forward(self, x):
        out = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr())
        self.library.square_plus_one(*pointers, ctypes.c_long(x.numel()))
        return out
