# honest: a bfloat16 task, computed in float32 and rounded once
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(256, 256, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        wide = x.float()
        return (torch.tanh(wide) * torch.sigmoid(wide)).bfloat16()
