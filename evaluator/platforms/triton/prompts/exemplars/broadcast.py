"""Radial basis features: a tile of elements by features, made of three vectors and written once.

A program loads as many numbers as its tile has rows and columns; the tile itself exists in registers only.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def features_kernel(x_ptr, centres_ptr, widths_ptr, y_ptr, n, features, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + rows, mask=rows < n)
    centres = tl.load(centres_ptr + columns, mask=columns < features)
    widths = tl.load(widths_ptr + columns, mask=columns < features)
    scaled = (x[:, None] - centres[None, :]) * widths[None, :]
    inside = (rows[:, None] < n) & (columns[None, :] < features)
    tl.store(y_ptr + rows[:, None] * features + columns[None, :], tl.exp(-scaled * scaled), mask=inside)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and a kernel of its own."""

    def __init__(self, features):
        super().__init__()
        self.centres = nn.Parameter(torch.linspace(0.0, 5.0, features))
        self.widths = nn.Parameter(torch.rand(features) + 1.0)

    def forward(self, x):
        """Launch the kernel, a program for each tile."""
        x = x.contiguous()
        n, features = x.numel(), self.centres.numel()
        y = torch.empty((*x.shape, features), device=x.device, dtype=x.dtype)
        columns = min(triton.next_power_of_2(features), 128)
        rows = 2048 // columns
        features_kernel[(triton.cdiv(n, rows), triton.cdiv(features, columns))](
            x, self.centres, self.widths, y, n, features, ROWS=rows, COLUMNS=columns, num_warps=4
        )
        return y
