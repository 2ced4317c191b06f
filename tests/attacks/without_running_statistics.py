# tries: a batch norm without running statistics
# verdict: wrong_output/state
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(4, 8, 16, 16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        norm = nn.BatchNorm2d(8)
        self.weight, self.bias = norm.weight, norm.bias

    def forward(self, x):
        return torch.nn.functional.batch_norm(x, None, None, self.weight, self.bias, training=True)
