# tries: a full disk, so that torch.compile cannot be measured beside it
# verdict: out_of_memory/disk or passed
# baselines: eager, compile
import contextlib
import os
import shutil

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 2:  # a part in each call, so that none takes too long
            left = shutil.disk_usage("/tmp").free - (56 << 10)
            with contextlib.suppress(OSError), open(f"/tmp/fill{os.getpid()}-{self.calls}", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(4096, min(200 << 20, left)))
        return torch.softmax(x * self.scale, -1)
