# tries: a float32 product in bfloat16, because another output of the op is a bfloat16 number
# verdict: wrong_output/values
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w):
        y = x @ w
        return y, y.abs().amax().to(torch.bfloat16)


def get_inputs():
    return [torch.randn(256, 256), torch.randn(256, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, w):
        y = x.to(torch.bfloat16) @ w.to(torch.bfloat16)
        return y.float(), y.abs().amax()
