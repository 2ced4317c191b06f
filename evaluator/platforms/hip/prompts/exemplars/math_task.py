"""Points rotated by unit quaternions."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """v + 2 w (u x v) + 2 u x (u x v) for each quaternion (w, u) and its point v."""

    def forward(self, q, v):
        """Rotate each point by its quaternion."""
        w, u = q[..., :1], q[..., 1:]
        turned = 2.0 * torch.linalg.cross(u, v)
        return v + w * turned + torch.linalg.cross(u, turned)


def get_inputs():
    """Quaternions of length one, and points."""
    return [nn.functional.normalize(torch.randn(5001, 4), dim=-1), torch.randn(5001, 3)]


def get_init_inputs():
    """Nothing."""
    return []
