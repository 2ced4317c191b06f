"""Points rotated by unit quaternions."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """v + 2 w (u x v) + 2 u x (u x v) for q = (w, u)."""

    def forward(self, q, v):
        """Rotate; q is (..., 4), v is (..., 3)."""
        w, u = q[..., :1], q[..., 1:]
        turned = 2.0 * torch.linalg.cross(u, v)
        return v + w * turned + torch.linalg.cross(u, turned)


def get_inputs():
    """Unit quaternions and points."""
    return [nn.functional.normalize(torch.randn(20_000, 4), dim=-1), torch.randn(20_000, 3)]


def get_init_inputs():
    """Nothing."""
    return []
