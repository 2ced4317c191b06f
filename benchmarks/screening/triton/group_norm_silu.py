"""GroupNorm, a shift for each channel and SiLU: a program a group, which it reads in three passes over a cache."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def group_norm_silu_kernel(
    x_ptr, embedding_ptr, weight_ptr, bias_ptr, y_ptr, groups, each, size, eps, BLOCK: tl.constexpr
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    image, channel = program // groups, program % groups * each
    count = each * size  # channels of a group lie one behind another
    first = program * count
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        sums += tl.load(x_ptr + first + at, mask=at < count, other=0.0)
    mean = tl.sum(sums, axis=0) / count
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        centred = tl.load(x_ptr + first + at, mask=at < count, other=0.0) - mean
        squares += tl.where(at < count, centred * centred, 0.0)
    scale = tl.rsqrt(tl.sum(squares, axis=0) / count + eps)
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < count
        own = channel + at // size
        factor = tl.load(weight_ptr + own, mask=inside, other=0.0)
        shift = tl.load(bias_ptr + own, mask=inside, other=0.0)
        shift += tl.load(embedding_ptr + image * groups * each + own, mask=inside, other=0.0)
        x = tl.load(x_ptr + first + at, mask=inside, other=0.0)
        shifted = (x - mean) * scale * factor + shift
        tl.store(y_ptr + first + at, shifted * tl.sigmoid(shifted), mask=inside)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x, embedding):
        """Launch the kernel, a program for each group of each image."""
        x, embedding, norm = x.contiguous(), embedding.contiguous(), self.norm
        y = torch.empty_like(x)
        images, channels, height, width = x.shape
        group_norm_silu_kernel[(images * norm.num_groups,)](
            x, embedding, norm.weight, norm.bias, y, norm.num_groups, channels // norm.num_groups, height * width,
            norm.eps, BLOCK=2048, num_warps=8,
        )  # fmt: skip
        return y
