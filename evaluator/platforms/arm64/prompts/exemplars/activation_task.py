"""Swish with a slope of 1.702, which is close to GELU.

Category: activation
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """x / (1 + exp(-1.702 x))."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Element-wise; any shape."""
        return x * torch.sigmoid(1.702 * x)


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(64, 500)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
