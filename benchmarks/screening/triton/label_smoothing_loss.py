"""Cross entropy with label smoothing: a program a sample, whose row is read once, then one adds up in fixed order."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def losses_kernel(logits_ptr, targets_ptr, weights_ptr, losses_ptr, classes, smoothing, BLOCK: tl.constexpr):
    sample = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < classes
    logits = tl.load(logits_ptr + sample * classes + columns, mask=inside, other=-float("inf"))
    highest = tl.max(logits, axis=0)
    shift = tl.where(highest == -float("inf"), 0.0, highest)
    spread = tl.log(tl.sum(tl.exp(logits - shift), axis=0))
    picked = spread - (tl.load(logits_ptr + sample * classes + tl.load(targets_ptr + sample)) - shift)
    uniform = spread - tl.sum(tl.where(inside, logits - shift, 0.0), axis=0) / classes
    loss = (1.0 - smoothing) * picked + smoothing * uniform
    tl.store(losses_ptr + sample, loss * tl.load(weights_ptr + sample))


@triton.jit
def mean_kernel(losses_ptr, weights_ptr, y_ptr, samples, BLOCK: tl.constexpr):
    losses = tl.zeros((BLOCK,), dtype=tl.float32)
    weights = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, samples, BLOCK):
        at = start + tl.arange(0, BLOCK)
        losses += tl.load(losses_ptr + at, mask=at < samples, other=0.0)
        weights += tl.load(weights_ptr + at, mask=at < samples, other=0.0)
    tl.store(y_ptr, tl.sum(losses, axis=0) / tl.sum(weights, axis=0))


class ModelNew(nn.Module):
    """Kernels of its own."""

    def forward(self, logits, targets, weights):
        """Launch the kernels: a program for each sample, then one for their mean."""
        logits, targets, weights = logits.contiguous(), targets.contiguous(), weights.contiguous()
        samples, classes = logits.shape
        losses = torch.empty(samples, device=logits.device, dtype=logits.dtype)
        y = torch.empty((), device=logits.device, dtype=logits.dtype)
        block = triton.next_power_of_2(classes)
        losses_kernel[(samples,)](
            logits, targets, weights, losses, classes, 0.1, BLOCK=block, num_warps=4 if block <= 2048 else 8
        )
        mean_kernel[(1,)](losses, weights, y, samples, BLOCK=1024, num_warps=4)
        return y
