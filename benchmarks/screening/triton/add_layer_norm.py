"""Residual addition and LayerNorm: a program a row, which stays in registers; the sum is written on the way."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_layer_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, normed_ptr, summed_ptr, features, eps, BLOCK: tl.constexpr
):  # fmt: skip
    columns = tl.arange(0, BLOCK)
    inside = columns < features
    at = tl.program_id(0).to(tl.int64) * features + columns
    summed = tl.load(x_ptr + at, mask=inside, other=0.0) + tl.load(residual_ptr + at, mask=inside, other=0.0)
    tl.store(summed_ptr + at, summed, mask=inside)
    centred = tl.where(inside, summed - tl.sum(summed, axis=0) / features, 0.0)
    spread = tl.sqrt(tl.sum(centred * centred, axis=0) / features + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + columns, mask=inside, other=0.0)
    tl.store(normed_ptr + at, centred / spread * weight + bias, mask=inside)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features) * 0.1)

    def forward(self, x, residual):
        """Launch the kernel, a program for each row."""
        x, residual = x.contiguous(), residual.contiguous()
        normed, summed = torch.empty_like(x), torch.empty_like(x)
        features = x.shape[-1]
        block = triton.next_power_of_2(features)
        add_layer_norm_kernel[(x.numel() // features,)](
            x, residual, self.weight, self.bias, normed, summed, features, self.eps, BLOCK=block,
            num_warps=4 if block <= 2048 else 8,
        )  # fmt: skip
        return normed, summed
