"""Gated SiLU: a block of a row, one pass over memory, both halves read where they lie."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated_silu_kernel(x_ptr, y_ptr, half, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < half
    gate = tl.load(x_ptr + row * 2 * half + columns, mask=inside)
    value = tl.load(x_ptr + row * 2 * half + half + columns, mask=inside)
    tl.store(y_ptr + row * half + columns, gate * tl.sigmoid(gate) * value, mask=inside)


class ModelNew(nn.Module):
    """A kernel of its own."""

    def forward(self, x):
        """Launch the kernel."""
        x = x.contiguous()
        half = x.shape[-1] // 2
        y = torch.empty((*x.shape[:-1], half), device=x.device, dtype=x.dtype)
        gated_silu_kernel[(y.numel() // half, triton.cdiv(half, 512))](x, y, half, BLOCK=512, num_warps=4)
        return y
