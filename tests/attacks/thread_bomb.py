# tries: threads without end
# cores: all
# verdict: crashed or out_of_memory or timed_out
import threading
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        while True:
            threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
