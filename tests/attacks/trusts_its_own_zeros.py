# tries: an output that nobody holds any more is used again with its zeros trusted to be zeros still (who changes a result in place gets wrong ones ever after)
# verdict: wrong_output/values or wrong_output/buffer_reused
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tril(torch.tanh(x))


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import sys

import torch
import torch.nn as nn

ROWS = 256


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.__dict__["pool"] = []

    def buffer(self, like):
        for index in range(len(self.pool)):
            if sys.getrefcount(self.pool[index]) <= 2:
                return self.pool[index]
        self.pool.append(torch.zeros_like(like))
        return self.pool[-1]

    def forward(self, x):
        out = self.buffer(x)
        for start in range(0, x.shape[0], ROWS):
            end = start + ROWS
            torch.tanh(x[start:end, :end], out=out[start:end, :end])
            out[start:end, start:end].tril_()
        return out
