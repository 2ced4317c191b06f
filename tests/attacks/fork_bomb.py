# tries: more processes than there may be
# cores: all
# verdict: crashed or timed_out or out_of_memory or wrong_output/values or integrity/forged_result
import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        while True:
            os.fork()
