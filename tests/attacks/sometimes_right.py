# tries: right in nine of ten calls
# verdict: wrong_output/values or wrong_output/nan
import random

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        if random.random() < 0.1:
            return torch.zeros_like(x)
        return torch.softmax(x * self.scale, -1)
