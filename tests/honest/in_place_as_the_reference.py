# honest: an input changed in place, because the reference does
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, weight, grad):
        weight -= 0.1 * grad
        return weight.abs().sum()


def get_inputs():
    return [torch.randn(256, 256), torch.randn(256, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, weight, grad):
        weight.add_(grad, alpha=-0.1)
        return weight.abs().sum()
