# tries: the same memory for two outputs that the reference keeps apart, and the module's own parameter for a copy of it
# verdict: wrong_output/layout
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(512, 1024))

    def forward(self, x):
        h = torch.tanh(x)
        return h, h.clone(), self.table.clone()


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(512, 1024))

    def forward(self, x):
        h = torch.tanh(x)
        return h, h, self.table
