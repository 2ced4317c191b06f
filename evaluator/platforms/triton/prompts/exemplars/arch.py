"""Squeeze and excitation in two launches: means first, then each program computes the gate of its channel anew.

The gate takes a few kilobytes of weights out of the L2 cache, which is less than a third launch and its memory.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_kernel(x_ptr, mean_ptr, n, BLOCK: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        sums += tl.load(x_ptr + plane * n + at, mask=at < n, other=0.0)
    tl.store(mean_ptr + plane, tl.sum(sums, axis=0) / n)


@triton.jit
def gate_kernel(
    x_ptr, shortcut_ptr, mean_ptr, squeeze_ptr, squeeze_bias_ptr, expand_ptr, expand_bias_ptr, y_ptr,
    channels, hidden, n, HIDDEN: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    plane = tl.program_id(0).to(tl.int64)
    channel = plane % channels
    units = tl.arange(0, HIDDEN)
    exists = units < hidden
    state = tl.load(squeeze_bias_ptr + units, mask=exists, other=0.0)
    for start in range(0, channels, CHANNELS):
        part = start + tl.arange(0, CHANNELS)
        mean = tl.load(mean_ptr + plane - channel + part, mask=part < channels, other=0.0)
        mask = exists[:, None] & (part[None, :] < channels)
        weight = tl.load(squeeze_ptr + units[:, None] * channels + part[None, :], mask=mask, other=0.0)
        state += tl.sum(weight * mean[None, :], axis=1)
    state = tl.where(state < 0, 0.0, state)
    weight = tl.load(expand_ptr + channel * hidden + units, mask=exists, other=0.0)
    gate = tl.sigmoid(tl.sum(weight * state, axis=0) + tl.load(expand_bias_ptr + channel))
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + plane * n + at, mask=inside)
    y = tl.load(shortcut_ptr + plane * n + at, mask=inside) + x * gate
    tl.store(y_ptr + plane * n + at, tl.where(y < 0, 0.0, y), mask=inside)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.squeeze = nn.Linear(channels, hidden)
        self.expand = nn.Linear(hidden, channels)

    def forward(self, x, shortcut):
        """Launch both kernels, with programs for each plane."""
        x, shortcut = x.contiguous(), shortcut.contiguous()
        images, channels, height, width = x.shape
        planes, n, hidden = images * channels, height * width, self.squeeze.out_features
        mean, y = torch.empty(planes, device=x.device, dtype=x.dtype), torch.empty_like(x)
        block = min(triton.next_power_of_2(n), 1024)
        mean_kernel[(planes,)](x, mean, n, BLOCK=block, num_warps=4)
        gate_kernel[(planes, triton.cdiv(n, block))](
            x, shortcut, mean, self.squeeze.weight, self.squeeze.bias, self.expand.weight, self.expand.bias, y,
            channels, hidden, n, HIDDEN=triton.next_power_of_2(hidden), CHANNELS=64, BLOCK=block, num_warps=4,
        )  # fmt: skip
        return y
