# honest: torch.compile, whose modules take far more memory than the op
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(256))

    def forward(self, x):
        return (torch.tanh(x * self.scale) + x).sum(-1)


def get_inputs():
    return [torch.randn(4096, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(256))
        object.__setattr__(self, "compiled", torch.compile(self.compute))

    def compute(self, x):
        y = torch.tanh(x * self.scale)
        torch._dynamo.graph_break()
        return (y + x).sum(-1)

    def forward(self, x):
        return self.compiled(x)
