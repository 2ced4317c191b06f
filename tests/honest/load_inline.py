# honest: a C++ extension made by torch.utils.cpp_extension.load_inline
# tag: custom_kernel
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (x * x + 1).relu()


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

torch::Tensor square_plus_one(torch::Tensor x) {
    auto out = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    #pragma omp parallel for simd
    for (int64_t i = 0; i < x.numel(); i++) to[i] = from[i] * from[i] + 1.0f;
    return out;
}
"""
extension = load_inline(
    name="square_plus_one",
    cpp_sources=SOURCE,
    functions=["square_plus_one"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.square_plus_one(x)
