# honest: the input itself, changed in place, as the reference returns it
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu_(x), x[:, ::2]


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x.clamp_(min=0)
        return x, x[:, ::2]
