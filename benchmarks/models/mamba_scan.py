"""A Mamba-style layer: a gated, selective state-space scan, computed in chunks of the sequence.

Within a chunk, the scan is a product with a lower triangular matrix of decays; from chunk to chunk, a state is carried
on. Gu and Dao, arXiv:2312.00752; the form in chunks is that of Dao and Gu, arXiv:2405.21060.

Category: arch
Dtype: float32
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4
LENGTH = 256
CHUNK = 32
FEATURES = 256
HEADS = 8
HEAD_SIZE = 64
STATES = 32
WINDOW = 4


def _linear(inputs, outputs):
    """A matrix without bias whose outputs have the scale of its inputs."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=inputs**-0.5)
    return layer


class Model(nn.Module):
    """x + output(norm(scan(u) * SiLU(gate))), all of them projected from norm(x).

    The scan of a head is s_t = exp(-rate * step_t) s_(t-1) + step_t * b_t u_t^T and y_t = c_t s_t + skip * u_t.
    The step of each head, and b and c, which all heads share, depend on the input. A short causal convolution goes over
    u, b and c first.
    """

    def __init__(self, features, heads, head_size, states, window, chunk):
        super().__init__()
        self.heads, self.head_size, self.states = heads, head_size, states
        self.window, self.chunk = window, chunk
        self.inner = heads * head_size
        mixed = self.inner + 2 * states
        self.norm = nn.LayerNorm(features)
        self.project = _linear(features, self.inner + mixed + heads)
        self.convolution = nn.Conv1d(mixed, mixed, window, padding=window - 1, groups=mixed)
        self.step_bias = nn.Parameter(torch.rand(heads) * 2 - 4)  # steps of about 0.02 to 0.13
        self.log_rate = nn.Parameter(torch.log(torch.rand(heads) * 15 + 1))
        self.skip = nn.Parameter(torch.rand(heads) + 0.5)
        self.output_norm = nn.LayerNorm(self.inner)
        self.output = _linear(self.inner, features)
        self.register_buffer("future", torch.ones(chunk, chunk, dtype=torch.bool).triu(1))

    def scan(self, u, step, b, c):
        """u: (batch, length, heads, size); step: (batch, length, heads); b and c: (batch, length, states)."""
        batch, length, heads, size = u.shape
        chunks = length // self.chunk
        # From here on: (batch, chunks, heads, chunk, ...), and one head for what all heads share.
        values = (u * step[..., None]).view(batch, chunks, self.chunk, heads, size).transpose(2, 3)
        logs = (-torch.exp(self.log_rate) * step).view(batch, chunks, self.chunk, heads).transpose(2, 3)
        b = b.view(batch, chunks, 1, self.chunk, self.states)
        c = c.view(batch, chunks, 1, self.chunk, self.states)
        decay = torch.cumsum(logs, dim=-1)  # the logarithm of what is left, since the chunk's start
        left = (decay[..., :, None] - decay[..., None, :]).masked_fill(self.future, float("-inf"))
        within = (torch.exp(left) * (c @ b.transpose(-2, -1))) @ values
        until_end = torch.exp(decay[..., -1:] - decay)
        added = b.transpose(-2, -1) @ (values * until_end[..., None])
        kept = torch.exp(decay[..., -1])[..., None, None]
        state = torch.zeros_like(added[:, 0])
        before = []
        for number in range(chunks):
            before.append(state)
            state = state * kept[:, number] + added[:, number]
        carried = (c @ torch.stack(before, dim=1)) * torch.exp(decay)[..., None]
        return (within + carried).transpose(2, 3).reshape(batch, length, heads, size)

    def forward(self, x):
        batch, length, _ = x.shape
        sizes = [self.inner, self.inner + 2 * self.states, self.heads]
        gate, mixed, step = self.project(self.norm(x)).split(sizes, dim=-1)
        mixed = F.silu(self.convolution(mixed.transpose(1, 2))[..., :length].transpose(1, 2))
        u, b, c = mixed.split([self.inner, self.states, self.states], dim=-1)
        u = u.reshape(batch, length, self.heads, self.head_size)
        y = self.scan(u, F.softplus(step + self.step_bias), b.contiguous(), c.contiguous()) + self.skip[:, None] * u
        y = y.reshape(batch, length, self.inner) * F.silu(gate)
        return x + self.output(self.output_norm(y))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, FEATURES)]


def get_init_inputs():
    return [FEATURES, HEADS, HEAD_SIZE, STATES, WINDOW, CHUNK]
