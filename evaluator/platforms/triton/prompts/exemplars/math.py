"""Rotations by quaternions: one pass, all intermediate vectors in registers.

A quaternion comes as one row of a tile of four columns, thus by one load of 16 bytes a thread, and is split there.
Points have three numbers, so their loads are strided; the three of them share each line in the L1 cache.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rotate_kernel(q_ptr, v_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    q = tl.load(q_ptr + at[:, None] * 4 + tl.arange(0, 4)[None, :], mask=inside[:, None])
    even, odd = tl.split(tl.reshape(q, (BLOCK, 2, 2)))
    w, uy = tl.split(even)
    ux, uz = tl.split(odd)
    vx = tl.load(v_ptr + at * 3, mask=inside)
    vy = tl.load(v_ptr + at * 3 + 1, mask=inside)
    vz = tl.load(v_ptr + at * 3 + 2, mask=inside)
    tx = 2.0 * (uy * vz - uz * vy)
    ty = 2.0 * (uz * vx - ux * vz)
    tz = 2.0 * (ux * vy - uy * vx)
    tl.store(y_ptr + at * 3, vx + w * tx + (uy * tz - uz * ty), mask=inside)
    tl.store(y_ptr + at * 3 + 1, vy + w * ty + (uz * tx - ux * tz), mask=inside)
    tl.store(y_ptr + at * 3 + 2, vz + w * tz + (ux * ty - uy * tx), mask=inside)


class ModelNew(nn.Module):
    """A kernel of its own."""

    def forward(self, q, v):
        """Launch the kernel, a program for each block of points."""
        q, v = q.contiguous(), v.contiguous()
        y = torch.empty_like(v)
        n = v.numel() // 3
        rotate_kernel[(triton.cdiv(n, 256),)](q, v, y, n, BLOCK=256, num_warps=4)
        return y
