"""LayerNorm over the last dimension, then ReLU.

Category: normalization
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """relu(layer_norm(x))."""

    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features, eps=eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., features)."""
        return torch.relu(self.norm(x))


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(128, 512)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return [512, 1e-5]
