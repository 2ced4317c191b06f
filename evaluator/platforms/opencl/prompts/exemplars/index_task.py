"""Scores of a graph's edges: the product of the features of both ends.

Category: index
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """nodes[source] . nodes[target] for each edge."""

    def forward(self, nodes: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """nodes: (nodes, features); source, target: (edges,) in int64."""
        return (nodes[source] * nodes[target]).sum(dim=-1)


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [
        torch.randn(10_000, 96),
        torch.randint(0, 10_000, (30_000,)),
        torch.randint(0, 10_000, (30_000,)),
    ]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
