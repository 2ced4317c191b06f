# honest: a view where the reference returns a view
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.transpose(0, 1)[::2]


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.t()[::2]
