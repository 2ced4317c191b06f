"""Attention whose scores are soft-capped by tanh, which no fused attention call of PyTorch offers.

Category: attention
Dtype: float32
"""

import math

import torch
import torch.nn as nn

BATCH = 2
HEADS = 8
LENGTH = 256
HEAD_SIZE = 64


class Model(nn.Module):
    """softmax(cap * tanh(q k^T / (cap * sqrt(d)))) v, causal."""

    def __init__(self, length, cap):
        super().__init__()
        self.cap = cap
        self.register_buffer("visible", torch.ones(length, length, dtype=torch.bool).tril())

    def forward(self, q, k, v):
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        capped = self.cap * torch.tanh(scores / self.cap)
        weights = torch.softmax(capped.masked_fill(~self.visible, float("-inf")), dim=-1)
        return torch.matmul(weights, v)


def get_inputs():
    return [torch.randn(BATCH, HEADS, LENGTH, HEAD_SIZE) for _ in range(3)]


def get_init_inputs():
    return [LENGTH, 20.0]
