# tries: 100 GB
# verdict: out_of_memory
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return torch.zeros(25_000_000_000)[: x.numel()].view_as(x)
