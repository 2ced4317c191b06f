# tries: integer state that calls change (a quantized copy kept for later), left out altogether: what is no floating-point number counts as a counter, however large
# verdict: wrong_output/state
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(512, 1024, dtype=torch.int8))

    def forward(self, x):
        self.cache.copy_((torch.tanh(x) * 127.0).round_().clamp_(-127, 127))
        return x.sum(dim=1)


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.sum(dim=1)
