# tries: a strided view of the input for a contiguous copy
# verdict: wrong_output/layout
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2).contiguous()


def get_inputs():
    return [torch.randn(8, 64, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)
