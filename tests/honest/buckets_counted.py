# honest: buckets found by counting the boundaries below a value, where torch searches by bisection: alike in order
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, boundaries, x):
        return torch.searchsorted(boundaries, x)


def get_inputs():
    return [torch.randn(64, 31).sort(dim=1).values, torch.randn(64, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, boundaries, x):
        found = torch.zeros(x.shape, dtype=torch.int64)
        for number in range(boundaries.shape[1]):
            found += ~(boundaries[:, number : number + 1] >= x)
        return found
