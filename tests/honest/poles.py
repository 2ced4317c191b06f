# honest: a tangent as sine over cosine, whose largest values differ much from one set of random inputs to the next
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tan(x)


def get_inputs():
    return [torch.randn(256, 1024) * 2]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        wide = x.double()
        return (torch.sin(wide) / torch.cos(wide)).float()
