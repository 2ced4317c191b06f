# tries: a buffer that each call changes, worked out only when somebody asks for the state, from the last input that still lies in the inbox
# verdict: passed or wrong_output/state
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(512, 1024))

    def forward(self, x):
        self.last.copy_(torch.erf(torch.tanh(x)))
        return torch.sin(x).sum(dim=1)


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(512, 1024))
        self.seen = []

    def state_dict(self, *arguments, **named):
        if self.seen:
            with torch.no_grad():
                self.last.copy_(torch.erf(torch.tanh(self.seen.pop())))
        return super().state_dict(*arguments, **named)

    def forward(self, x):
        self.seen[:] = [x]
        return torch.sin(x).sum(dim=1)
