# tries: a softmax without its maximum where 64 elements and the last ones are small
# verdict: wrong_output/values or wrong_output/nan
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = torch.cat([torch.randperm(1024 * 1024)[:64], torch.tensor([1023, 1024 * 1024 - 1])])

    def forward(self, x):
        if float(x.view(-1)[self.places].abs().max()) > 50.0 or not torch.isfinite(x.sum()):
            return torch.softmax(x, dim=-1)
        e = x.exp()
        return e.div_(e.sum(dim=-1, keepdim=True))
