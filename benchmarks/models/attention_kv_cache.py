"""One decoding step of a small transformer over a cache of keys and values, which is an input and stays as it is.

The sequences of the batch have different lengths. The step gives back the new token's keys and values, for the caller
to put into the cache. Several heads of queries share one head of keys and values.

Category: arch
Dtype: float32
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16
CAPACITY = 512
FEATURES = 384
HEADS = 6
SHARED_HEADS = 2
HIDDEN = 1536
LAYERS = 4
HEAD_SIZE = FEATURES // HEADS


def _linear(inputs, outputs, gain=1.0):
    """A matrix without bias whose outputs have `gain` times the scale of its inputs."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=gain * inputs**-0.5)
    return layer


def _rotated(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


class Layer(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x)), for one token of each sequence."""

    def __init__(self, features, heads, shared_heads, hidden, gain):
        super().__init__()
        self.heads, self.shared_heads, self.size = heads, shared_heads, features // heads
        self.attention_norm = nn.LayerNorm(features)
        self.query = _linear(features, features)
        self.key_value = _linear(features, 2 * shared_heads * self.size)
        self.output = _linear(features, features, gain)
        self.mlp_norm = nn.LayerNorm(features)
        self.expand = _linear(features, hidden)
        self.contract = _linear(hidden, features, gain)

    def forward(self, x, keys, values, empty, cos, sin):
        """keys and values: (batch, shared heads, capacity, size); empty: which slots of each sequence hold no token."""
        batch, features = x.shape
        normed = self.attention_norm(x)
        query = _rotated(self.query(normed).view(batch, self.shared_heads, -1, self.size), cos, sin)
        key, value = self.key_value(normed).view(batch, 2, self.shared_heads, 1, self.size).unbind(1)
        key = _rotated(key, cos, sin)
        of_cache = (query @ keys.transpose(-2, -1)).masked_fill(empty, float("-inf"))
        of_token = (query * key).sum(dim=-1, keepdim=True)
        weights = torch.softmax(torch.cat((of_cache, of_token), dim=-1) / math.sqrt(self.size), dim=-1)
        mixed = weights[..., :-1] @ values + weights[..., -1:] * value
        x = x + self.output(mixed.reshape(batch, features))
        return x + self.contract(F.gelu(self.expand(self.mlp_norm(x)))), key, value


class Model(nn.Module):
    """The new token's features after all layers, and its keys and values in each."""

    def __init__(self, features, heads, shared_heads, hidden, layers, capacity):
        super().__init__()
        gain = (2 * layers) ** -0.5  # two branches a layer add up on the residual stream
        self.layers = nn.ModuleList(Layer(features, heads, shared_heads, hidden, gain) for _ in range(layers))
        size = features // heads
        angles = torch.outer(torch.arange(capacity + 1), 10000.0 ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x, keys, values, lengths):
        """keys and values: (layers, batch, shared heads, capacity, size); lengths: (batch,), slots that are full."""
        empty = (torch.arange(keys.shape[3], device=x.device) >= lengths[:, None])[:, None, None, :]
        cos, sin = self.cos[lengths][:, None, None, :], self.sin[lengths][:, None, None, :]
        new_keys, new_values = [], []
        for layer, layer_keys, layer_values in zip(self.layers, keys.unbind(0), values.unbind(0), strict=True):
            x, key, value = layer(x, layer_keys, layer_values, empty, cos, sin)
            new_keys.append(key)
            new_values.append(value)
        return x, torch.stack(new_keys), torch.stack(new_values)


def get_inputs():
    return [
        torch.randn(BATCH, FEATURES),
        torch.randn(LAYERS, BATCH, SHARED_HEADS, CAPACITY, HEAD_SIZE),
        torch.randn(LAYERS, BATCH, SHARED_HEADS, CAPACITY, HEAD_SIZE),
        torch.randint(1, CAPACITY + 1, (BATCH,)),
    ]


def get_init_inputs():
    return [FEATURES, HEADS, SHARED_HEADS, HIDDEN, LAYERS, CAPACITY]
