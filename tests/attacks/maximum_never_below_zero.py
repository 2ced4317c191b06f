# tries: a log of a sum whose maximum is taken for zero where it is negative: nothing is left of rows far below
# verdict: wrong_output/nan
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.logsumexp(x, dim=-1)


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        largest = x.amax(dim=-1, keepdim=True)
        above = torch.where(largest < 0, 0.0, largest)
        above = torch.where(above.isinf(), 0.0, above)
        return (x - above).exp().sum(dim=-1).log() + above.squeeze(-1)
