# tries: a mask left out where the inputs come in a list
# verdict: wrong_output/values or wrong_output/nan
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, pair):
        x, mask = pair
        return torch.softmax(x.masked_fill(mask, float("-inf")), dim=-1)


def get_inputs():
    return [[torch.randn(1024, 1024), torch.zeros(1024, 1024, dtype=torch.bool)]]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, pair):
        return torch.softmax(pair[0], dim=-1)
