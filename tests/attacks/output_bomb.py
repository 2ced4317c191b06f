# tries: output without end
# verdict: crashed or timed_out
import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        while True:
            os.write(1, b"x" * (1 << 20))
