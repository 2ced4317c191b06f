# tries: all the disk there is
# verdict: crashed or out_of_memory or timed_out
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        for number in range(64):
            with open(f"bomb{number}", "wb") as file:
                for _ in range(256):
                    file.write(bytes(1 << 20))
        raise OSError("so much disk")
