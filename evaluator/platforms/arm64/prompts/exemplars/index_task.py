"""Rows of a table picked by number, each with a weight.

Category: index
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """weight[:, None] * table[rows]."""

    def forward(self, table: torch.Tensor, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """table: (entries, n); rows: (picked,) in int64; weight: (picked,)."""
        return weight[:, None] * table[rows]


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(100, 96), torch.randint(0, 100, (200,)), torch.randn(200)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
