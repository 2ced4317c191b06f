"""Upsampling by two and normalization in one pass: a program makes a stretch of flat outputs."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def source(place, size):
    # Of a place in the larger image: both places in the smaller one, and how much the second counts.
    exact = tl.maximum(0.5 * place.to(tl.float32) - 0.25, 0.0)
    first = exact.to(tl.int32)
    return first, tl.minimum(first + 1, size - 1), exact - first.to(tl.float32)


@triton.jit
def resize_kernel(x_ptr, mean_ptr, std_ptr, y_ptr, n, channels, height, width, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    row = (at // (2 * width)) % (2 * height)
    plane = at // (4 * height * width)
    upper, lower, down = source(row, height)
    left, right, across = source(at % (2 * width), width)
    top = plane * height * width + upper * width
    bottom = plane * height * width + lower * width
    first = tl.load(x_ptr + top + left, mask=inside) * (1.0 - across)
    first += tl.load(x_ptr + top + right, mask=inside) * across
    second = tl.load(x_ptr + bottom + left, mask=inside) * (1.0 - across)
    second += tl.load(x_ptr + bottom + right, mask=inside) * across
    shift = tl.load(mean_ptr + plane % channels, mask=inside)
    spread = tl.load(std_ptr + plane % channels, mask=inside)
    tl.store(y_ptr + at, ((1.0 - down) * first + down * second - shift) / spread, mask=inside)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, channels):
        super().__init__()
        self.mean = nn.Parameter(torch.rand(channels, 1, 1))
        self.std = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)

    def forward(self, images):
        """Launch the kernel."""
        images = images.contiguous()
        batch, channels, height, width = images.shape
        y = torch.empty((batch, channels, 2 * height, 2 * width), device=images.device, dtype=images.dtype)
        n = y.numel()
        resize_kernel[(triton.cdiv(n, 1024),)](
            images, self.mean, self.std, y, n, channels, height, width, BLOCK=1024, num_warps=4
        )
        return y
