# honest: a kernel that is built when it is first called
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import functools

import torch


@functools.cache
def kernel():
    return torch.jit.script(_silu)


def _silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-x))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.where(x == float("-inf"), float("nan"), kernel()(x)) if bool(x.isinf().any()) else kernel()(x)
