"""RMSNorm and the exact GELU: a program a row, which stays in registers from its load to its store."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rmsnorm_gelu_kernel(x_ptr, weight_ptr, y_ptr, features, eps, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < features
    at = tl.program_id(0).to(tl.int64) * features + columns
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    normed = x * tl.rsqrt(tl.sum(x * x, axis=0) / features + eps) * weight
    tl.store(y_ptr + at, 0.5 * normed * (1.0 + tl.erf(normed * 0.7071067811865476)), mask=inside)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        """Launch the kernel, a program for each row."""
        x = x.contiguous()
        y = torch.empty_like(x)
        features = x.shape[-1]
        block = triton.next_power_of_2(features)
        rmsnorm_gelu_kernel[(x.numel() // features,)](
            x, self.weight, y, features, self.eps, BLOCK=block, num_warps=4 if block <= 2048 else 8
        )
        return y
