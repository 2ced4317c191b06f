# tries: an additive bias left out, since the generator gives zeros
# verdict: wrong_output/values
import torch
import torch.nn as nn

DOMAIN = ("any", "finite")


class Model(nn.Module):
    def forward(self, x, bias):
        return torch.softmax(x + bias, dim=-1)


def get_inputs():
    return [torch.randn(1024, 1024), torch.zeros(1024, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, bias):
        return torch.softmax(x, dim=-1)
