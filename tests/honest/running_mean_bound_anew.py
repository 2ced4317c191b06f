# honest: state that calls change, put into a new tensor each time instead of changed in place
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(256))

    def forward(self, x):
        self.mean.mul_(0.9).add_(x.mean(dim=0), alpha=0.1)
        return x - x.mean(dim=0)


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(256))

    def forward(self, x):
        mean = x.mean(dim=0)
        self.mean = self.mean * 0.9 + 0.1 * mean
        return x - mean
