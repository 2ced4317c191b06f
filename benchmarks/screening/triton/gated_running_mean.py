"""Two running sums at once: a program goes down some columns, scans a tile of steps and carries the sums."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def running_mean_kernel(
    q_ptr, k_ptr, v_ptr, y_ptr, length, features, eps, STEPS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    base = tl.program_id(1).to(tl.int64) * length * features
    gates = tl.zeros((COLUMNS,), dtype=tl.float32)
    values = tl.zeros((COLUMNS,), dtype=tl.float32)
    for start in range(0, length, STEPS):
        steps = start + tl.arange(0, STEPS)
        mask = (steps[:, None] < length) & (columns[None, :] < features)
        at = base + steps[:, None] * features + columns[None, :]
        q = tl.load(q_ptr + at, mask=mask, other=0.0)
        gate = tl.sigmoid(tl.load(k_ptr + at, mask=mask, other=-float("inf")))
        value = gate * tl.load(v_ptr + at, mask=mask, other=0.0)
        total = tl.cumsum(gate, axis=0) + gates[None, :]
        weighted = tl.cumsum(value, axis=0) + values[None, :]
        tl.store(y_ptr + at, tl.sigmoid(q) * weighted / (total + eps), mask=mask)
        gates += tl.sum(gate, axis=0)
        values += tl.sum(value, axis=0)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, q, k, v):
        """Launch the kernel, a program for each group of columns."""
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        y = torch.empty_like(q)
        batch, length, features = q.shape
        running_mean_kernel[(triton.cdiv(features, 16), batch)](
            q, k, v, y, length, features, self.eps, STEPS=64, COLUMNS=16, num_warps=4
        )
        return y
