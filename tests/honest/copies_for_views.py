# honest: copies where the reference returns the input and a view of it
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x, x.t(), x.unsqueeze(0).expand(2, -1, -1)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clone(), x.t().contiguous(), x.repeat(2, 1, 1)
