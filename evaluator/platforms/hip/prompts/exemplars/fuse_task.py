"""Bias, SiLU, rows scaled to unit length, and a residual."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """The residual, and the activated row at length one, with a weight for each feature."""

    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.bias = nn.Parameter(torch.randn(features) * 0.1)
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x, residual):
        """Shift, activate, normalize, weight and add."""
        hidden = nn.functional.silu(x + self.bias)
        return residual + self.weight * nn.functional.normalize(hidden, dim=-1, eps=self.eps)


def get_inputs():
    """A batch of token vectors, and what they are added to."""
    return [torch.randn(48, 1000), torch.randn(48, 1000)]


def get_init_inputs():
    """The number of features, and the least length that is divided by."""
    return [1000, 1e-12]
