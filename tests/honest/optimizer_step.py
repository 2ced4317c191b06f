# honest: several inputs changed in place, and nothing returned but a number
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, p, g, m, v):
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.99).addcmul_(g, g, value=0.01)
        p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.01)
        return g.norm()


def get_inputs():
    return [torch.randn(1 << 14), torch.randn(1 << 14), torch.randn(1 << 14), torch.rand(1 << 14)]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, p, g, m, v):
        m.lerp_(g, 0.1)
        v.copy_(v * 0.99 + 0.01 * g * g)
        p.sub_(m.div(v.sqrt().add_(1e-8)).mul_(0.01))
        return torch.linalg.vector_norm(g)
