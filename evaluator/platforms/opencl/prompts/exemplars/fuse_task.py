"""Bias, SiLU, rows scaled to unit length, a weight for each feature and a residual.

Category: fuse
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """residual + weight * normalize(silu(x + bias))."""

    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.bias = nn.Parameter(torch.randn(features) * 0.1)
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """x, residual: (..., features)."""
        hidden = nn.functional.silu(x + self.bias)
        return residual + self.weight * nn.functional.normalize(hidden, dim=-1, eps=self.eps)


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(1024, 1000), torch.randn(1024, 1000)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return [1000, 1e-12]
