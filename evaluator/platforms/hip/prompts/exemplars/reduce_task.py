"""Errors of one tensor against another, over all elements."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """The length of the difference relative to that of the second tensor, and the largest difference."""

    def forward(self, x, y):
        """Two numbers for two tensors of one shape."""
        difference = x - y
        relative = torch.linalg.vector_norm(difference) / torch.linalg.vector_norm(y)
        return relative, difference.abs().max()


def get_inputs():
    """Two batches of vectors."""
    return [torch.randn(61, 1003), torch.randn(61, 1003)]


def get_init_inputs():
    """Nothing."""
    return []
