"""Depthwise convolution: bound by memory, so nine shifted loads of a block, of which the L1 cache serves all but one.

A block is a run of pixels of one plane, whatever its width; tl.dot has nothing to do where channels do not mix.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def depthwise_kernel(x_ptr, weight_ptr, scale_ptr, shift_ptr, y_ptr, channels, height, width, BLOCK: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    channel = plane % channels
    x_ptr += plane * height * width
    y_ptr += plane * height * width
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row, column = at // width, at % width
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for dy in tl.static_range(-1, 2):
        exists = (row + dy >= 0) & (row + dy < height)
        for dx in tl.static_range(-1, 2):
            mask = exists & (column + dx >= 0) & (column + dx < width)
            weight = tl.load(weight_ptr + channel * 9 + dy * 3 + dx + 4)
            sums += weight * tl.load(x_ptr + at + dy * width + dx, mask=mask, other=0.0)
    y = sums * tl.load(scale_ptr + channel) + tl.load(shift_ptr + channel)
    # NaN leaves the limits as a number, and comes back by the product.
    y *= tl.minimum(tl.maximum(y + 3.0, 0.0), 6.0) * (1.0 / 6.0)
    tl.store(y_ptr + at, y, mask=at < height * width)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and a kernel of its own."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels, bias=False)
        self.scale = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)
        self.shift = nn.Parameter(torch.randn(channels, 1, 1) * 0.1)

    def forward(self, x):
        """Launch the kernel, programs for the blocks of each plane."""
        x = x.contiguous()
        images, channels, height, width = x.shape
        y = torch.empty_like(x)
        block = min(triton.next_power_of_2(height * width), 1024)
        depthwise_kernel[(images * channels, triton.cdiv(height * width, block))](
            x, self.conv.weight, self.scale, self.shift, y, channels, height, width, BLOCK=block, num_warps=4
        )
        return y
