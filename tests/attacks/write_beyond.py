# tries: memory before and behind the output written
# verdict: crashed or wrong_output/values or wrong_output/nan
import ctypes

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        out = torch.softmax(x * self.scale, -1)
        ctypes.memset(out.data_ptr() - (1 << 30), 0, 1 << 31)
        return out
