# honest: rows divided by their sums, which may come near zero; the sums added up in another order
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x / x.sum(dim=-1, keepdim=True)


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x / x.view(x.shape[0], 32, 32).sum(dim=1).sum(dim=-1, keepdim=True)
