"""A block of a small GPT with everything written out: masked softmax attention, and GELU by its tanh formula.

Category: arch
Dtype: float32
"""

import math

import torch
import torch.nn as nn

BATCH = 8
LENGTH = 128
FEATURES = 256
HEADS = 8


def _gelu(x):
    """The tanh approximation of GELU; Hendrycks and Gimpel, arXiv:1606.08415."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class CausalAttention(nn.Module):
    """softmax(q k^T / sqrt(d)) v over the positions up to each one's own."""

    def __init__(self, features, heads, length):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(features, 3 * features)
        self.output = nn.Linear(features, features)
        nn.init.kaiming_normal_(self.query_key_value.weight, nonlinearity="linear")
        self.register_buffer("visible", torch.ones(length, length, dtype=torch.bool).tril())

    def forward(self, x):
        batch, length, features = x.shape
        size = features // self.heads
        q, k, v = (
            part.view(batch, length, self.heads, size).transpose(1, 2)
            for part in self.query_key_value(x).split(features, dim=2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(size)
        hidden = ~self.visible[:length, :length]
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
        return self.output((weights @ v).transpose(1, 2).reshape(batch, length, features))


class Model(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, features, heads, length):
        super().__init__()
        self.attention_norm = nn.LayerNorm(features)
        self.attention = CausalAttention(features, heads, length)
        self.mlp_norm = nn.LayerNorm(features)
        self.expand = nn.Linear(features, 4 * features)
        self.contract = nn.Linear(4 * features, features)
        for layer in (self.expand, self.contract):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.contract(_gelu(self.expand(self.mlp_norm(x))))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, FEATURES)]


def get_init_inputs():
    return [FEATURES, HEADS, LENGTH]
