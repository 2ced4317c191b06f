# tries: a sparse tensor
# verdict: wrong_output/layout
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return torch.softmax(x * self.scale, -1).to_sparse()
