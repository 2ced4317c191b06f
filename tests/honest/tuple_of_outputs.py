# honest: several outputs of several types, returned as a list
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        values, indices = x.sort(dim=-1)
        return values, indices, x > 0


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        indices = torch.argsort(x, dim=-1)
        return [x.gather(-1, indices), indices, x.gt(0)]
