"""A gated activation."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """One half of the features, gated by the SiLU of the other half."""

    def forward(self, x):
        """Gate and multiply."""
        gate, value = x.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * value


def get_inputs():
    """A batch of token vectors."""
    return [torch.randn(48, 1024)]


def get_init_inputs():
    """Nothing."""
    return []
