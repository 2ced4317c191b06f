# honest: numbers that are no tensors, summed in another order
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.square().mean().sqrt().item(), bool(x.sum() > 0), int((x > 1).sum()), "rms", None


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        flat = x.flatten()
        rms = (torch.dot(flat, flat) / flat.numel()).sqrt().item()
        return rms, bool(x.sum(0).sum() > 0), int(torch.count_nonzero(x > 1)), "rms", None
