"""Running totals of many series side by side.

Category: scan
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """cumsum along the first dimension, scaled."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (steps, series)."""
        return 0.5 * torch.cumsum(x, dim=0)


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(60, 300)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
