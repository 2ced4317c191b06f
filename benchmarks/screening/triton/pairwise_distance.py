"""Distances through one product: a program makes a tile and adds up squared lengths of its rows on the way."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"M": 64, "N": 64, "K": 32}, num_warps=4, num_stages=2),
        triton.Config({"M": 64, "N": 128, "K": 32}, num_warps=8, num_stages=2),
    ],
    key=["queries", "points", "dimensions"],
)
@triton.jit
def distances_kernel(
    a_ptr, b_ptr, y_ptr, queries, points, dimensions, eps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    products = tl.zeros((M, N), dtype=tl.float32)
    a_lengths = tl.zeros((M,), dtype=tl.float32)
    b_lengths = tl.zeros((N,), dtype=tl.float32)
    for start in range(0, dimensions, K):
        at = start + tl.arange(0, K)
        a_mask = (rows[:, None] < queries) & (at[None, :] < dimensions)
        b_mask = (columns[:, None] < points) & (at[None, :] < dimensions)
        a = tl.load(a_ptr + rows[:, None].to(tl.int64) * dimensions + at[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + columns[:, None].to(tl.int64) * dimensions + at[None, :], mask=b_mask, other=0.0)
        products = tl.dot(a, tl.trans(b), products, input_precision="ieee")
        a_lengths += tl.sum(a * a, axis=1)
        b_lengths += tl.sum(b * b, axis=1)
    squared = a_lengths[:, None] + b_lengths[None, :] - 2.0 * products
    squared = tl.where(squared < 0, 0.0, squared)  # not tl.maximum: NaN must stay NaN
    inside = (rows[:, None] < queries) & (columns[None, :] < points)
    tl.store(y_ptr + rows[:, None].to(tl.int64) * points + columns[None, :], tl.sqrt(squared + eps), mask=inside)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, a, b):
        """Launch the kernel, a program for each tile."""
        a, b = a.contiguous(), b.contiguous()
        (queries, dimensions), points = a.shape, b.shape[0]
        y = torch.empty((queries, points), device=a.device, dtype=a.dtype)
        distances_kernel[lambda meta: (triton.cdiv(queries, meta["M"]), triton.cdiv(points, meta["N"]))](
            a, b, y, queries, points, dimensions, self.eps
        )
        return y
