"""Scores of a graph's edges."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """The product of the features of both ends of each edge, summed."""

    def forward(self, nodes, source, target):
        """Score each edge."""
        return (nodes[source] * nodes[target]).sum(dim=-1)


def get_inputs():
    """Features of nodes, and the nodes at both ends of each edge."""
    return [torch.randn(300, 96), torch.randint(0, 300, (1001,)), torch.randint(0, 300, (1001,))]


def get_init_inputs():
    """Nothing."""
    return []
