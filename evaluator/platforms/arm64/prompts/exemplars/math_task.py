"""Length of pairs, weighted by the first of them.

Category: math
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """sqrt(a^2 + b^2) / (1 + |a|)."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Element-wise; two tensors of one shape."""
        return (a * a + b * b).sqrt() / (1 + a.abs())


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(64, 300), torch.randn(64, 300)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
