"""Depthwise convolution of a mobile network's block."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """A 3x3 convolution of each channel by itself, a scale and a shift for each channel, and hard swish."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels, bias=False)
        self.scale = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)
        self.shift = nn.Parameter(torch.randn(channels, 1, 1) * 0.1)

    def forward(self, x):
        """Convolve, scale, shift and activate."""
        return nn.functional.hardswish(self.scale * self.conv(x) + self.shift)


def get_inputs():
    """A batch of feature maps."""
    return [torch.randn(2, 12, 42, 56)]


def get_init_inputs():
    """The number of channels."""
    return [12]
