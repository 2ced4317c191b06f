"""A GPT-style decoder: token embedding, layers of causal attention and SwiGLU between RMSNorms, and a head.

Positions enter by rotary embedding of queries and keys. The tables of angles are buffers outside the state dict.

Category: arch
Dtype: float32
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 2
LENGTH = 128
VOCABULARY = 2048
FEATURES = 256
HEADS = 8
HIDDEN = 704
LAYERS = 4
EPS = 1e-6


class RMSNorm(nn.Module):
    """Each row at unit root mean square, times a weight for each feature."""

    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps) * self.weight


def _linear(inputs, outputs, gain=1.0):
    """A matrix without bias whose outputs have `gain` times the scale of its inputs."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=gain * inputs**-0.5)
    return layer


def _rotated(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


class Attention(nn.Module):
    """Causal self-attention of several heads with rotary positions."""

    def __init__(self, features, heads, gain):
        super().__init__()
        self.heads = heads
        self.query_key_value = _linear(features, 3 * features)
        self.output = _linear(features, features, gain)

    def forward(self, x, cos, sin):
        batch, length, features = x.shape
        split = self.query_key_value(x).view(batch, length, 3, self.heads, features // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(_rotated(q, cos, sin), _rotated(k, cos, sin), v, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, features))


class SwiGLU(nn.Module):
    """down(SiLU(gate(x)) * up(x)), with gate and up in one matrix."""

    def __init__(self, features, hidden, gain):
        super().__init__()
        self.gate_up = _linear(features, 2 * hidden)
        self.down = _linear(hidden, features, gain)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    """x + attention(norm(x)), then x + SwiGLU(norm(x))."""

    def __init__(self, features, heads, hidden, eps, gain):
        super().__init__()
        self.attention_norm = RMSNorm(features, eps)
        self.attention = Attention(features, heads, gain)
        self.mlp_norm = RMSNorm(features, eps)
        self.mlp = SwiGLU(features, hidden, gain)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    """Logits of the next token at each position."""

    def __init__(self, vocabulary, features, heads, hidden, layers, length, eps):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, features)
        gain = (2 * layers) ** -0.5  # two branches a layer add up on the residual stream
        self.layers = nn.ModuleList(Layer(features, heads, hidden, eps, gain) for _ in range(layers))
        self.norm = RMSNorm(features, eps)
        self.head = _linear(features, vocabulary)
        size = features // heads
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        length = tokens.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


def get_inputs():
    return [torch.randint(0, VOCABULARY, (BATCH, LENGTH))]


def get_init_inputs():
    return [VOCABULARY, FEATURES, HEADS, HIDDEN, LAYERS, LENGTH, EPS]
