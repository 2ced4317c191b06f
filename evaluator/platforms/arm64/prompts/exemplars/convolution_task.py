"""Depthwise 3x3 convolution and ReLU.

Category: convolution
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """relu(conv(x)), each channel by itself."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (images, channels, height, width)."""
        return torch.relu(self.conv(x))


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(2, 8, 20, 40)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return [8]
