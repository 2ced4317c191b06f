"""A candidate for rmsnorm_gelu that is wrong, though a comparison with a tolerance of 1e-2 would let it pass.

It takes the tanh formula for GELU, which is off by up to 5e-4, where the op asks for the exact one.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    """Drop-in for Model in its arguments and its parameter, but not in its results."""

    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        normed = F.rms_norm(x, x.shape[-1:], self.weight, self.eps)
        return F.gelu(normed, approximate="tanh")
