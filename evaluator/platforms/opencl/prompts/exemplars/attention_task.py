"""Attention with a bias that grows with the distance of query and key, in place of position embeddings.

Category: attention
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """softmax(q k^T / sqrt(d) - slopes |i - j|) v."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slopes = nn.Parameter(0.5 ** torch.arange(1, heads + 1))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q: (batch, heads, queries, d); k, v: (batch, heads, keys, d)."""
        scores = torch.matmul(q, k.transpose(-2, -1)) * q.shape[-1] ** -0.5
        i = torch.arange(q.shape[-2])[:, None]
        j = torch.arange(k.shape[-2])
        distance = (i - j).abs() * self.slopes[:, None, None]
        return torch.matmul(torch.softmax(scores - distance, dim=-1), v)


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(1, 8, 400, 64) for _ in range(3)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return [8]
