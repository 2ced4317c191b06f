# honest: the same parameters from the same seed under other names
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return [256]


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        layer = torch.nn.Linear(width, width)
        self.w, self.b = layer.weight, layer.bias

    def forward(self, x):
        return torch.addmm(self.b, x, self.w.t()).clamp_min(0)
