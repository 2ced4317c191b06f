# tries: rows divided by their length without the least length that the reference allows (NaN for a row of zeros)
# verdict: wrong_output/nan
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.normalize(x, dim=1)


def get_inputs():
    return [torch.randn(64, 512)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x / x.norm(dim=1, keepdim=True)
