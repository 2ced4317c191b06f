"""Rows weighted by one vector, columns shifted by another.

Category: broadcast
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """x * row + column, and its square."""

    def forward(self, x: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        """x: (rows, n); row: (rows, 1); column: (n,)."""
        return (x * row + column).square()


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(64, 300), torch.randn(64, 1), torch.randn(300)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
