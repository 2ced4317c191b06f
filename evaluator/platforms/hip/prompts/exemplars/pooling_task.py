"""Peaks of heat maps."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """What is not the maximum of its 5x5 neighbourhood becomes zero, as in the detection of key points."""

    def forward(self, x):
        """Keep the peaks."""
        highest = nn.functional.max_pool2d(x, kernel_size=5, stride=1, padding=2)
        return torch.where(x == highest, x, 0.0)


def get_inputs():
    """A batch of maps whose sizes are no multiples of a tile."""
    return [torch.randn(2, 6, 52, 44)]


def get_init_inputs():
    """Nothing."""
    return []
