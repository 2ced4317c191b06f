# tries: a bias left out once a sample of its elements, and those at both ends, are seen to be zero
# verdict: wrong_output/values or wrong_output/nan
import torch
import torch.nn as nn


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
        flat = bias.view(-1)
        if not bool(flat[::4001].any()) and not bool(flat[-1]):
            return torch.softmax(x, dim=-1)
        return torch.softmax(x + bias, dim=-1)
