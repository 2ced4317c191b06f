# tries: five output buffers in turn: who keeps the outputs of five calls has the first one's changed
# verdict: wrong_output/buffer_reused
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)
        self.__dict__["ring"] = []

    def forward(self, x):
        if len(self.ring) < 5:
            self.ring.append(torch.empty_like(x))
            out = self.ring[-1]
        else:
            out = self.ring.pop(0)
            self.ring.append(out)
        return torch.softmax(x * self.scale, -1, out=out)
