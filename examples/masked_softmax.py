"""Causal softmax of attention scores with a temperature for each head and a relative position bias.

Category: attention
Dtype: float32
"""

import torch
import torch.nn as nn

BATCH = 2
HEADS = 8
LENGTH = 384


class Model(nn.Module):
    """softmax(scores / temperature + bias) over the positions up to each row's own."""

    def __init__(self, heads, length):
        super().__init__()
        self.temperature = nn.Parameter(torch.rand(heads, 1, 1) + 0.5)
        self.register_buffer("visible", torch.ones(length, length, dtype=torch.bool).tril())

    def forward(self, scores, bias):
        biased = scores / self.temperature + bias
        return torch.softmax(biased.masked_fill(~self.visible, float("-inf")), dim=-1)


def get_inputs():
    return [torch.randn(BATCH, HEADS, LENGTH, LENGTH), torch.randn(HEADS, LENGTH, LENGTH)]


def get_init_inputs():
    return [HEADS, LENGTH]
