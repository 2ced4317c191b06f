"""Max and average pooling of the same windows in one pass over flat outputs, blended by a share for each channel."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mixed_pool_kernel(x_ptr, blend_ptr, y_ptr, n, channels, height, width, rows, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < n
    row, column = at // columns % rows, at % columns
    plane = at // (rows * columns)
    most = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for tap in tl.static_range(9):
        i = 2 * row + tap // 3 - 1
        j = 2 * column + tap % 3 - 1
        inside = there & (i >= 0) & (i < height) & (j >= 0) & (j < width)
        x = tl.load(x_ptr + (plane * height + i) * width + j, mask=inside, other=0.0)
        sums += x
        most = tl.where(inside & ((x > most) | (x != x)), x, most)  # not tl.maximum: NaN must stay NaN
    share = tl.sigmoid(tl.load(blend_ptr + plane % channels, mask=there, other=0.0))
    tl.store(y_ptr + at, share * most + (1.0 - share) * (sums / 9.0), mask=there)  # the padding's zeros count, too


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, channels):
        super().__init__()
        self.blend = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        """Launch the kernel."""
        x = x.contiguous()
        batch, channels, height, width = x.shape
        rows, columns = (height - 1) // 2 + 1, (width - 1) // 2 + 1
        y = torch.empty((batch, channels, rows, columns), device=x.device, dtype=x.dtype)
        n = y.numel()
        mixed_pool_kernel[(triton.cdiv(n, 512),)](
            x, self.blend, y, n, channels, height, width, rows, columns, BLOCK=512, num_warps=4
        )
        return y
