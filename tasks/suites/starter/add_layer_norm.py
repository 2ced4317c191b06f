"""Residual addition and LayerNorm written out, returning both, as a pre-norm transformer block needs them.

Category: normalization
Dtype: float32
"""

import torch
import torch.nn as nn

TOKENS = 2048
FEATURES = 1024


class Model(nn.Module):
    """(LayerNorm(x + residual), x + residual)."""

    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features) * 0.1)

    def forward(self, x, residual):
        summed = x + residual
        centered = summed - summed.mean(dim=-1, keepdim=True)
        variance = (centered * centered).mean(dim=-1, keepdim=True)
        normed = centered / torch.sqrt(variance + self.eps)
        return normed * self.weight + self.bias, summed


def get_inputs():
    return [torch.randn(TOKENS, FEATURES), torch.randn(TOKENS, FEATURES)]


def get_init_inputs():
    return [FEATURES, 1e-5]
