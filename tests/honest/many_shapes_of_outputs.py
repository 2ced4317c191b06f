# honest: outputs of no dimension, of no element, of complex numbers, expanded, and with gaps
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        y = torch.tanh(x)
        return y.sum(), y[:0], torch.complex(y, -y), y[:, :1].mean(dim=0).expand(64, 1), y.t()[::2], y > 0


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.tanh(x)
        return y.sum(), y[:0], torch.complex(y, -y), y[:, :1].mean(dim=0).expand(64, 1), y.t()[::2], y > 0
