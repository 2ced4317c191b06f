# tries: an output buffer that was never written
# verdict: wrong_output/layout or wrong_output/values or wrong_output/nan
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return torch.empty_like(x)
