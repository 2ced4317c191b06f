# honest: threads of its own, started anew in each call
# tag: custom_kernel
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2.0


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <thread>
#include <vector>
extern "C" void run(const float *x, float *y, long n) {
    std::vector<std::thread> threads;
    for (long part = 0; part < 2; part++)
        threads.emplace_back([=] {
            for (long i = part * n / 2; i < (part + 1) * n / 2; i++) y[i] = 2.0f * std::tanh(x[i]);
        });
    for (auto &thread : threads) thread.join();
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        folder = Path(tempfile.mkdtemp())
        (folder / "k.cpp").write_text(SOURCE)
        command = ["g++", "-O3", "-march=native", "-shared", "-fPIC", "-pthread", "-o", "k.so", "k.cpp"]
        subprocess.run(command, cwd=folder, check=True)
        self.run = ctypes.CDLL(str(folder / "k.so")).run

    def forward(self, x):
        x, y = x.contiguous(), torch.empty(x.shape)
        self.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
        return y
