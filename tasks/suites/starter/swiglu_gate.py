"""The gate of a SwiGLU feed-forward layer: one half of the last dimension, through SiLU, scales the other.

Category: activation
Dtype: float32
"""

import torch
import torch.nn as nn

TOKENS = 1536
HIDDEN = 1408


class Model(nn.Module):
    """SiLU(beta * gate) * value for a projection that holds gate and value side by side."""

    def __init__(self, hidden):
        super().__init__()
        self.beta = nn.Parameter(torch.rand(hidden) + 0.5)

    def forward(self, projected):
        gate, value = projected.chunk(2, dim=-1)
        gate = gate * self.beta
        return gate * torch.sigmoid(gate) * value


def get_inputs():
    return [torch.randn(TOKENS, 2 * HIDDEN)]


def get_init_inputs():
    return [HIDDEN]
