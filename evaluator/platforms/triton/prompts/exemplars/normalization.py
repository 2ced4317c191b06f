"""Layer normalization: a program a row, which stays in registers from its load to its store."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, features, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < features
    x = tl.load(x_ptr + row * features + columns, mask=inside, other=0.0)
    mean = tl.sum(x, axis=0) / features
    centred = tl.where(inside, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / features + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row * features + columns, centred * scale * weight + bias, mask=inside)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and a kernel of its own."""

    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        """Launch the kernel, a program for each row."""
        assert x.is_cuda, "x must lie on the GPU"
        x = x.contiguous()
        y = torch.empty_like(x)
        features = x.shape[-1]
        block = triton.next_power_of_2(features)
        warps = 4 if block <= 2048 else 8
        layer_norm_kernel[(x.numel() // features,)](
            x, self.norm.weight, self.norm.bias, y, features, self.norm.eps, BLOCK=block, num_warps=warps
        )
        return y
