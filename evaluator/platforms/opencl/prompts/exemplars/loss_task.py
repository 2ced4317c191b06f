"""Focal loss over many classes: cross entropy that well classified samples hardly count in.

Category: loss
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """mean of -(1 - p)^2 log p, with p the probability of each sample's target."""

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """logits: (samples, classes); targets: (samples,) in int64."""
        log_probabilities = nn.functional.log_softmax(logits, dim=-1)
        picked = log_probabilities.gather(1, targets[:, None]).squeeze(1)
        return (-((1.0 - picked.exp()) ** 2) * picked).mean()


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(1500, 1500) * 2.0, torch.randint(0, 1500, (1500,))]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
