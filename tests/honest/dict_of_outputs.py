# honest: a dict, its keys in another order
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {"mean": x.mean(-1), "centred": {"x": x - x.mean(-1, keepdim=True)}}


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        mean = x.sum(-1) / x.shape[-1]
        return {"centred": {"x": x - mean[:, None]}, "mean": mean}
