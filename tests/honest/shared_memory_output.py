# honest: an output in shared memory of its own
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import mmap

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.frombuffer(mmap.mmap(-1, x.numel() * 4), dtype=torch.float32).view_as(x)
        return torch.add(x, 1, out=out)
