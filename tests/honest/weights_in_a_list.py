# honest: weights that are no parameters, in a list and a dict
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(self.second(torch.relu(self.first(x))))


def get_inputs():
    return [torch.randn(32, 128)]


def get_init_inputs():
    return [128]


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        first, second = torch.nn.Linear(width, width), torch.nn.Linear(width, width, bias=False)
        self.weights = [first.weight.detach(), first.bias.detach(), second.weight.detach()]
        self.norm = {"scale": torch.ones(width), "shift": torch.zeros(width)}

    def forward(self, x):
        hidden = torch.addmm(self.weights[1], x, self.weights[0].t()).relu_()
        return torch.nn.functional.layer_norm(hidden @ self.weights[2].t(), x.shape[-1:], *self.norm.values())
