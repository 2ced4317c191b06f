"""Running totals: a program goes down a few series, scans a tile of steps at a time and carries totals in registers.

Each element is read once. All threads scan the steps of a tile, and a row of a tile is a whole line of memory.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def totals_kernel(x_ptr, y_ptr, steps, series, STEPS: tl.constexpr, SERIES: tl.constexpr):
    columns = tl.program_id(0) * SERIES + tl.arange(0, SERIES)
    totals = tl.zeros((SERIES,), dtype=tl.float32)
    for start in range(0, steps, STEPS):
        rows = start + tl.arange(0, STEPS)
        mask = (rows[:, None] < steps) & (columns[None, :] < series)
        at = rows[:, None].to(tl.int64) * series + columns[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=0.0)
        tl.store(y_ptr + at, 0.5 * (tl.cumsum(x, axis=0) + totals[None, :]), mask=mask)
        totals += tl.sum(x, axis=0)


class ModelNew(nn.Module):
    """A kernel of its own."""

    def forward(self, x):
        """Launch the kernel, a program for each group of series."""
        x = x.contiguous()
        y = torch.empty_like(x)
        steps, series = x.shape
        totals_kernel[(triton.cdiv(series, 32),)](x, y, steps, series, STEPS=64, SERIES=32, num_warps=4)
        return y
