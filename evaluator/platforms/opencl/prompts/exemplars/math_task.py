"""Points rotated by unit quaternions.

Category: math
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """v + 2 w (u x v) + 2 u x (u x v) for q = (w, u)."""

    def forward(self, q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q: (..., 4); v: (..., 3)."""
        w, u = q[..., :1], q[..., 1:]
        turned = 2.0 * torch.linalg.cross(u, v)
        rotated: torch.Tensor = v + w * turned + torch.linalg.cross(u, turned)
        return rotated


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [nn.functional.normalize(torch.randn(200_000, 4), dim=-1), torch.randn(200_000, 3)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
