"""RMSNorm with a learned scale, then GELU, as between the layers of a transformer.

Category: normalization
Dtype: float32
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 2048
FEATURES = 2048


class Model(nn.Module):
    """Scale each row to unit root mean square, multiply by a weight for each feature, apply the exact GELU."""

    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        normed = x * torch.rsqrt(mean_square + self.eps)
        return F.gelu(normed * self.weight)


def get_inputs():
    return [torch.randn(TOKENS, FEATURES)]


def get_init_inputs():
    return [FEATURES, 1e-6]
