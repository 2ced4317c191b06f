"""Mish.

Category: activation
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """x · tanh(softplus(x))."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Element-wise; any shape."""
        return x * torch.tanh(nn.functional.softplus(x))


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(2048, 1024)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
