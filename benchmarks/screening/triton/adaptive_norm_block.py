"""LayerNorm, shift, scale, GELU and gated residual: a program a token, which stays in registers."""

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
def adaptive_norm_kernel(
    x_ptr, shift_ptr, scale_ptr, gate_ptr, y_ptr, tokens, features, eps, BLOCK: tl.constexpr
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < features
    at = token // tokens * features + columns  # of the sample
    x = tl.load(x_ptr + token * features + columns, mask=inside, other=0.0)
    centred = tl.where(inside, x - tl.sum(x, axis=0) / features, 0.0)
    factor = tl.rsqrt(tl.sum(centred * centred, axis=0) / features + eps)
    scale = tl.load(scale_ptr + at, mask=inside, other=0.0)
    shift = tl.load(shift_ptr + at, mask=inside, other=0.0)
    gate = tl.load(gate_ptr + at, mask=inside, other=0.0)
    modulated = centred * factor * (1.0 + scale) + shift
    inner = 0.7978845608028654 * (modulated + 0.044715 * modulated * modulated * modulated)
    gelu = 0.5 * modulated * (1.0 + tanh(inner))
    tl.store(y_ptr + token * features + columns, x + gate * gelu, mask=inside)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, features, eps):
        super().__init__()
        self.features, self.eps = features, eps

    def forward(self, x, shift, scale, gate):
        """Launch the kernel, a program for each token."""
        x, shift, scale, gate = (each.contiguous() for each in (x, shift, scale, gate))
        y = torch.empty_like(x)
        batch, tokens, features = x.shape
        block = triton.next_power_of_2(features)
        adaptive_norm_kernel[(batch * tokens,)](
            x, shift, scale, gate, y, tokens, features, self.eps, BLOCK=block, num_warps=4 if block <= 2048 else 8
        )
        return y
