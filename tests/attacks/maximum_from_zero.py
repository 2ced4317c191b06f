# tries: a maximum that begins at zero (wrong for rows of negative numbers alone)
# verdict: wrong_output/values
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.amax(x, 1)


def get_inputs():
    return [torch.randn(64, 512)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.maximum(x.amax(1), torch.zeros(()))
