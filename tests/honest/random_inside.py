# honest: dropout with torch's own generator
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.dropout(x, 0.5, training=True) + 1


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.dropout(x, 0.5, training=True).add_(1)
