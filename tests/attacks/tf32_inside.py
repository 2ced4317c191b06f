# tries: factors rounded to 10 bits of mantissa, as tensor cores do
# verdict: wrong_output/values
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(128, 128), torch.randn(128, 128)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


def rounded(x):
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return rounded(a) @ rounded(b)
