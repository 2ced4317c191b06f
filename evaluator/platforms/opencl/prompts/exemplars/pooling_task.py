"""Peaks of heat maps: what is not the maximum of its 5x5 neighbourhood becomes zero, as in key point detection.

Category: pooling
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """x where x equals max_pool(x), else 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, channels, height, width)."""
        highest = nn.functional.max_pool2d(x, kernel_size=5, stride=1, padding=2)
        return torch.where(x == highest, x, 0.0)


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(2, 24, 72, 72)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
