"""Mean size and largest size of the numbers in each row.

Category: reduce
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """(mean |x|, max |x|) over the last dimension."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x: (rows, n)."""
        size = x.abs()
        return size.mean(-1), size.amax(-1)


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(64, 300)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
