# tries: memory beyond the input read for what may lie there
# verdict: crashed or wrong_output/values or wrong_output/nan
import ctypes

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        data = ctypes.string_at(x.data_ptr() + (1 << 24), x.numel() * 4)
        return torch.frombuffer(bytearray(data), dtype=torch.float32).view_as(x)
