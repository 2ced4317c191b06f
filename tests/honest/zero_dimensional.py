# honest: a loss: one number, summed in another order
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return ((x - y) ** 2).mean()


def get_inputs():
    return [torch.randn(512, 512), torch.randn(512, 512)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        difference = (x - y).flatten()
        return torch.dot(difference, difference) / difference.numel()
