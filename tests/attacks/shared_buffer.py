# tries: one output buffer for all calls
# verdict: wrong_output/buffer_reused
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)
        self.out = None

    def forward(self, x):
        self.out = torch.empty_like(x) if self.out is None else self.out
        torch.softmax(x * self.scale, -1, out=self.out)
        return self.out
