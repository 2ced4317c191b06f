# honest: a scratch buffer kept between calls that is no output
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x * 3 - 1)


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    scratch = None

    def forward(self, x):
        if self.scratch is None:
            self.scratch = torch.empty_like(x)
        torch.mul(x, 3, out=self.scratch)
        return torch.relu(self.scratch - 1)
