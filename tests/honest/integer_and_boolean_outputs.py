# honest: integers and booleans of several widths
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return (x * y + 7).cumsum(1), x > y, (x % 5).to(torch.uint8), (x * x).sum(-1)


def get_inputs():
    return [torch.randint(-20, 20, (64, 128)), torch.randint(-20, 20, (64, 128))]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        sums = torch.addcmul(torch.full_like(x, 7), x, y).cumsum_(1)
        return sums, y < x, torch.remainder(x, 5).to(torch.uint8), (x.unsqueeze(1) * x.unsqueeze(1)).sum((1, 2))
