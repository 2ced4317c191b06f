"""Scores of a graph's edges: the product of the features of both ends."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """nodes[source] . nodes[target] for each edge."""

    def forward(self, nodes, source, target):
        """Score the edges; nodes is (nodes, features), source and target are (edges,) in int64."""
        return (nodes[source] * nodes[target]).sum(dim=-1)


def get_inputs():
    """A graph's nodes and edges."""
    return [torch.randn(400, 96), torch.randint(0, 400, (700,)), torch.randint(0, 400, (700,))]


def get_init_inputs():
    """Nothing."""
    return []
