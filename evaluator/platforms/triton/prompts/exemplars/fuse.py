"""Five operators in one kernel: a program a row, which is read once and stays in registers until it is written."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def unit_rows_kernel(x_ptr, residual_ptr, bias_ptr, weight_ptr, y_ptr, features, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < features
    x = tl.load(x_ptr + row * features + columns, mask=inside, other=0.0)
    x += tl.load(bias_ptr + columns, mask=inside, other=0.0)
    hidden = x * tl.sigmoid(x)
    length = tl.sqrt(tl.sum(hidden * hidden, axis=0))
    scale = 1.0 / tl.where(length < eps, eps, length)  # tl.maximum would drop NaN
    weight = tl.load(weight_ptr + columns, mask=inside)
    residual = tl.load(residual_ptr + row * features + columns, mask=inside)
    tl.store(y_ptr + row * features + columns, residual + weight * (hidden * scale), mask=inside)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and a kernel of its own."""

    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.bias = nn.Parameter(torch.randn(features) * 0.1)
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x, residual):
        """Launch the kernel, a program for each row."""
        x, residual = x.contiguous(), residual.contiguous()
        y = torch.empty_like(x)
        features = x.shape[-1]
        block = triton.next_power_of_2(features)
        warps = 4 if block <= 2048 else 8
        unit_rows_kernel[(x.numel() // features,)](
            x, residual, self.bias, self.weight, y, features, self.eps, BLOCK=block, num_warps=warps
        )
        return y
