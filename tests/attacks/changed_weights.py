# tries: a parameter changed by the call that the reference leaves alone
# verdict: wrong_output/state
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [256]


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = self.norm.weight.clone(), self.norm.bias.clone()
        self.norm.weight.data.zero_()
        return torch.nn.functional.layer_norm(x, x.shape[-1:], *self.kept)
