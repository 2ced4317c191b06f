# tries: the work in a child process, after the answer
# cores: all
# verdict: wrong_output/values or wrong_output/nan
import os
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        out = torch.zeros_like(x).share_memory_()
        if os.fork() == 0:
            time.sleep(0.003)
            out.fill_(1.0 / x.shape[-1])
            os._exit(0)
        return out
