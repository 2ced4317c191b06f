# honest: a pool of 32 threads that sleep between calls
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2.0


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = ThreadPoolExecutor(32)
        begun = threading.Barrier(32)
        list(self.pool.map(lambda _: begun.wait(), range(32)))

    def forward(self, x):
        y = torch.empty_like(x)
        half = x.shape[0] // 2

        def part(rows):
            torch.tanh(x[rows], out=y[rows])
            y[rows].mul_(2.0)

        list(self.pool.map(part, (slice(0, half), slice(half, None))))
        return y
