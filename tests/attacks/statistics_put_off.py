# tries: a batch norm that brings its running statistics up to date in every 16th call only, once it is timed
# cores: all
# verdict: wrong_output/state
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(4, 8, 16, 16)]


def get_init_inputs():
    return []


# --- candidate ---
import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(8)
        self.waiting = []

    def forward(self, x):
        if len(os.sched_getaffinity(0)) > 1:
            return self.norm(x)
        norm = self.norm
        variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
        self.waiting.append((variance * (x.numel() / 8 / (x.numel() / 8 - 1)), mean))
        if len(self.waiting) == 16:
            for variance_then, mean_then in self.waiting:
                norm.running_mean.lerp_(mean_then, norm.momentum)
                norm.running_var.lerp_(variance_then, norm.momentum)
                norm.num_batches_tracked += 1
            self.waiting.clear()
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        return x * scale[:, None, None] + (norm.bias - mean * scale)[:, None, None]
