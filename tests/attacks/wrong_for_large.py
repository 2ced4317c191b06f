# tries: a softmax without its maximum, which overflows
# verdict: wrong_output/values or wrong_output/nan
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        e = torch.exp(x * self.scale)
        return e / e.sum(-1, keepdim=True)
