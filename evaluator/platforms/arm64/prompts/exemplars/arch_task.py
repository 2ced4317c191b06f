"""Channels weighted by a gate that sees their means, then a residual and ReLU.

Category: arch
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """relu(x * sigmoid(w * mean + b) + residual)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """x, residual: (images, channels, height, width)."""
        gate = torch.sigmoid(self.weight * x.mean((2, 3)) + self.bias)
        return torch.relu(x * gate[:, :, None, None] + residual)


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(2, 12, 20, 20), torch.randn(2, 12, 20, 20)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return [12]
