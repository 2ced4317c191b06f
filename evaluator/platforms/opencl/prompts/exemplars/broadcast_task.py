"""Radial basis features: each distance against a row of centres.

Category: broadcast
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """exp(-(widths (x - centres))^2), one row of features for each element of x."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.linspace(0.0, 5.0, features))
        self.widths = nn.Parameter(torch.rand(features) + 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: any shape; the result has one dimension more."""
        scaled = (x[..., None] - self.centres) * self.widths
        return torch.exp(-scaled.square())


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.rand(48, 512) * 5.0]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return [72]
