# tries: all columns but the last
# verdict: wrong_output/values
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        out = torch.softmax(x * self.scale, -1)
        out[:, -1] = 0
        return out
