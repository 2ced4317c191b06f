"""Drawdown of many series: how far the running total is below its highest value so far.

Category: scan
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """cummax(cumsum(x)) - cumsum(x), along the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., length)."""
        level = torch.cumsum(x, dim=-1)
        return torch.cummax(level, dim=-1).values - level


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(1024, 1000)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
