"""Causal softmax: a program a row, which stays in registers; scores are read where they are visible."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_softmax_kernel(
    scores_ptr, bias_ptr, temperature_ptr, visible_ptr, y_ptr, heads, length, BLOCK: tl.constexpr
):  # fmt: skip
    query, pair = tl.program_id(0), tl.program_id(1).to(tl.int64)
    head = pair % heads
    columns = tl.arange(0, BLOCK)
    inside = columns < length
    seen = tl.load(visible_ptr + query * length + columns, mask=inside, other=0).to(tl.int1)
    at = (pair * length + query) * length + columns
    scores = tl.load(scores_ptr + at, mask=seen, other=0.0) / tl.load(temperature_ptr + head)
    scores += tl.load(bias_ptr + (head * length + query) * length + columns, mask=seen, other=0.0)
    scores = tl.where(seen, scores, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, axis=0))  # maxima drop NaN; it comes through the sum
    tl.store(y_ptr + at, weights / tl.sum(weights, axis=0), mask=inside)


class ModelNew(nn.Module):
    """The same parameters as the reference's, and kernels of its own."""

    def __init__(self, heads, length):
        super().__init__()
        self.temperature = nn.Parameter(torch.rand(heads, 1, 1) + 0.5)
        self.register_buffer("visible", torch.ones(length, length, dtype=torch.bool).tril())

    def forward(self, scores, bias):
        """Launch the kernel, a program for each row."""
        scores, bias = scores.contiguous(), bias.contiguous()
        y = torch.empty_like(scores)
        batch, heads, length, _ = scores.shape
        block = triton.next_power_of_2(length)
        masked_softmax_kernel[(length, batch * heads)](
            scores, bias, self.temperature, self.visible, y, heads, length, BLOCK=block,
            num_warps=4 if block <= 2048 else 8,
        )  # fmt: skip
        return y
