"""Scaled dot-product attention of a few heads.

Category: attention
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """softmax(q k^T / sqrt(d)) v."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q, k, v: (batch, heads, tokens, d)."""
        weights = torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, dim=-1)
        return weights @ v


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(1, 3, 40, 32) for _ in range(3)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
