# tries: an index left out, since the generator always gives the same one; the reference refuses large integers there, so that no family changes it
# verdict: wrong_output/values
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, index):
        return torch.tanh(x)[index]


def get_inputs():
    return [torch.randn(1024, 1024), torch.arange(1023, -1, -1)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, index):
        out = torch.empty_like(x)
        for start in range(0, 1024, 128):
            out[1024 - 128 - start : 1024 - start] = torch.tanh(x[start : start + 128]).flip(0)
        return out
