# honest: a contiguous copy where the reference returns a transposed one
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (x * 2).t()


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return (x + x).t().contiguous()
