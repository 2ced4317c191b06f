# honest: right for what the op takes: its square root is NaN for negative numbers, and the loss refuses them
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, p):
        return x.sqrt() * torch.log(x + 1), nn.functional.binary_cross_entropy(p, p)


def get_inputs():
    return [torch.rand(64, 256), torch.rand(64, 256) * 0.98 + 0.01]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, p):
        inside = (p >= 0).logical_and_(p <= 1).logical_or_(p.isnan())
        if not bool(inside.all()):
            raise ValueError("not a probability")
        entropy = torch.lerp(torch.log1p(-p).clamp_(min=-100), torch.log(p).clamp_(min=-100), p)
        return torch.log1p(x).mul_(x.pow(0.5)), -entropy.mean()
