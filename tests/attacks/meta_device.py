# tries: an output that has no memory
# verdict: wrong_output/device
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return torch.empty_like(x, device="meta")
