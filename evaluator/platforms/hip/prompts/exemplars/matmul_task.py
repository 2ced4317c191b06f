"""A product of two matrices, and what follows it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """Multiply, then clamp from below at zero."""

    def forward(self, a, b):
        """Multiply and clamp."""
        return torch.relu(a @ b)


def get_inputs():
    """Two matrices whose sizes are no multiples of a tile."""
    return [torch.randn(72, 100), torch.randn(100, 56)]


def get_init_inputs():
    """Nothing."""
    return []
