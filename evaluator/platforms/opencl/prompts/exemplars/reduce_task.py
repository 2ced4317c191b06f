"""Relative and largest error of one tensor against another, over all elements.

Category: reduce
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """(|x - y| / |y|, max |x - y|), with Euclidean norms."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Two numbers for two tensors of one shape."""
        difference = x - y
        relative = torch.linalg.vector_norm(difference) / torch.linalg.vector_norm(y)
        return relative, difference.abs().max()


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(2048, 1024), torch.randn(2048, 1024)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
