"""GELU by its tanh formula: one pass over flat elements, so that loads are vectors whatever the shape."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh(x):
    # By the exponential of a negative number, which cannot overflow. NaN stays NaN.
    small = tl.exp(-2.0 * tl.abs(x))
    value = (1.0 - small) / (1.0 + small)
    return tl.where(x < 0, -value, value)


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + at, 0.5 * x * (1.0 + tanh(inner)), mask=inside)


class ModelNew(nn.Module):
    """Kernels of its own."""

    def forward(self, x):
        """Launch the kernel."""
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        gelu_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024, num_warps=4)
        return y
