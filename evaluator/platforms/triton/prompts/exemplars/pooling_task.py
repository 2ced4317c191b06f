"""Peaks of heat maps: what is not the maximum of its 5x5 neighbourhood becomes zero, as in key point detection."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """x where x equals max_pool(x), else 0."""

    def forward(self, x):
        """Keep the peaks; x is (images, channels, height, width)."""
        highest = nn.functional.max_pool2d(x, kernel_size=5, stride=1, padding=2)
        return torch.where(x == highest, x, 0.0)


def get_inputs():
    """A batch of heat maps."""
    return [torch.randn(2, 1, 18, 40)]


def get_init_inputs():
    """Nothing."""
    return []
