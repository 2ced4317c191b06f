"""Drawdown of many series."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """How far the running total of each row is below its highest value so far."""

    def forward(self, x):
        """The highest total so far, minus the total."""
        level = torch.cumsum(x, dim=-1)
        return torch.cummax(level, dim=-1).values - level


def get_inputs():
    """A batch of series."""
    return [torch.randn(40, 1500)]


def get_init_inputs():
    """Nothing."""
    return []
