# honest: packed densely where the reference's output is channels last, but neither contiguous
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (x * 2).to(memory_format=torch.channels_last)


def get_inputs():
    return [torch.randn(4, 8, 16, 16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.mul(x.transpose(0, 1).contiguous(), 2).transpose(0, 1)
