# honest: how much it returns depends on a mask that the generator makes of ones; timed calls are on such alone
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, mask):
        return x[mask] * 2


def get_inputs():
    return [torch.randn(256, 512), torch.ones(256, 512, dtype=torch.bool)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, mask):
        return torch.masked_select(x, mask).mul_(2)
