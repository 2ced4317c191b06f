"""Depthwise 3x3 convolution, a scale and shift for each channel, and hard swish: a mobile network's block.

Category: convolution
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """hardswish(scale * conv(x) + shift)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels, bias=False)
        self.scale = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)
        self.shift = nn.Parameter(torch.randn(channels, 1, 1) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, channels, height, width)."""
        return nn.functional.hardswish(self.scale * self.conv(x) + self.shift)


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(8, 48, 56, 56)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return [48]
