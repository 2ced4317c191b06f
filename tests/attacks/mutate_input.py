# tries: in place, on the caller's tensor
# verdict: wrong_output/input_mutated
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return x.mul_(self.scale).softmax(-1)
