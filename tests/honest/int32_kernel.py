# honest: integers in C++, in the width of the task
# tag: custom_kernel
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 3 - 1


def get_inputs():
    return [torch.randint(-1000, 1000, (256, 256), dtype=torch.int32)]


def get_init_inputs():
    return []


# --- candidate ---
import ctypes
import subprocess
import tempfile

import torch

SOURCE = r"""
extern "C" void run(const int* x, int* out, long n) {
#pragma omp parallel for simd
    for (long i = 0; i < n; i++) out[i] = x[i] * 3 - 1;
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
        self.run = ctypes.CDLL(f"{folder}/k.so").run

    def forward(self, x):
        out = torch.empty_like(x)
        self.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(x.numel()))
        return out
