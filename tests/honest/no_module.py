# honest: a plain class with a __call__
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return x * self.scale


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [256]


# --- candidate ---
import torch


class ModelNew:
    def __init__(self, width):
        self.scale = torch.rand(width) + 0.5

    def __call__(self, x):
        return torch.mul(self.scale, x)
