"""Huber loss.

Category: loss
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """mean of d^2 / 2 where d = |x - y| is below 1, else of d - 1/2."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """x, y: one shape."""
        return nn.functional.smooth_l1_loss(x, y)


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(64, 300), torch.randn(64, 300)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
