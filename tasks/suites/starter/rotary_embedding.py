"""Rotary position embedding of queries and keys, by the rotate-half formula.

Category: broadcast
Dtype: float32
"""

import torch
import torch.nn as nn

BATCH = 2
HEADS = 8
LENGTH = 512
HEAD_SIZE = 128


class Model(nn.Module):
    """x cos + rotate_half(x) sin, for q and k, with tables for each position broadcast over batch and heads."""

    def __init__(self, length, head_size):
        super().__init__()
        frequencies = 10000.0 ** (-torch.arange(0, head_size, 2) / head_size)
        angles = torch.outer(torch.arange(length), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def rotate(self, x):
        low, high = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-high, low), dim=-1) * self.sin

    def forward(self, q, k):
        return self.rotate(q), self.rotate(k)


def get_inputs():
    return [torch.randn(BATCH, HEADS, LENGTH, HEAD_SIZE) for _ in range(2)]


def get_init_inputs():
    return [LENGTH, HEAD_SIZE]
