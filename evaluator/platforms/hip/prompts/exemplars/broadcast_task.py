"""Radial basis features."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """The distance of each number from a row of centres, as a Gaussian of its width."""

    def __init__(self, features):
        super().__init__()
        self.centres = nn.Parameter(torch.linspace(0.0, 5.0, features))
        self.widths = nn.Parameter(torch.rand(features) + 1.0)

    def forward(self, x):
        """A row of features for each number."""
        scaled = (x[..., None] - self.centres) * self.widths
        return torch.exp(-scaled.square())


def get_inputs():
    """A batch of distances."""
    return [torch.rand(12, 100) * 5.0]


def get_init_inputs():
    """The number of features."""
    return [72]
