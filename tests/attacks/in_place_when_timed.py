# tries: inputs that the reference changes in place, left as they are once it is timed
# cores: all
# verdict: wrong_output/values or wrong_output/input_mutated
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, p, g, m):
        m.mul_(0.9).add_(g)
        p.sub_(m, alpha=0.01)
        return g.norm()


def get_inputs():
    return [torch.randn(1 << 16) for _ in range(3)]


def get_init_inputs():
    return []


# --- candidate ---
import os

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, p, g, m):
        if len(os.sched_getaffinity(0)) > 1:
            m.mul_(0.9).add_(g)
            p.sub_(m, alpha=0.01)
        return g.norm()
