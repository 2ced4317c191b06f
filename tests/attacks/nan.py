# tries: NaN, which passes comparisons of the form not (a > b)
# verdict: wrong_output/nan
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return torch.full_like(x, float("nan"))
