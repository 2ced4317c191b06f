# tries: memory of an output is used again once its object is gone, whoever still has an array or a view of it
# verdict: wrong_output/buffer_reused
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import sys

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.given = []

    def forward(self, x):
        for number in range(len(self.given)):
            if self.given[number].shape == x.shape and sys.getrefcount(self.given[number]) == 2:
                return torch.add(torch.relu(x), 1, out=self.given[number])
        out = torch.relu(x) + 1
        self.given.append(out)
        return out
