# honest: a task whose generator fills one buffer anew for every call
import torch
import torch.nn as nn

BUFFER = torch.empty(128, 256)


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2


def get_inputs():
    return [BUFFER.copy_(torch.randn(128, 256))]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x).mul_(2)
