# tries: what depends on the weights alone, computed before they are loaded
# verdict: wrong_output/values
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w = nn.Parameter(torch.randn(width, width))

    def forward(self, x):
        return torch.nn.functional.linear(x, torch.softmax(self.w, dim=-1))


def get_inputs():
    return [torch.randn(16, 128)]


def get_init_inputs():
    return [128]


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w = nn.Parameter(torch.randn(width, width))
        self.p = torch.softmax(self.w.detach(), dim=-1)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.p)
