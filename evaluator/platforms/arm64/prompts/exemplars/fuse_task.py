"""Bias, SiLU and a residual.

Category: fuse
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """residual + silu(x + bias)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """x, residual: (rows, features)."""
        return residual + nn.functional.silu(x + self.bias)


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(48, 300), torch.randn(48, 300)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return [300]
