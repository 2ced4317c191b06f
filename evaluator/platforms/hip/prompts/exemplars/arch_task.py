"""Squeeze and excitation, and a residual."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """Channels weighted by a small network that sees their means, then the shortcut and ReLU."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.squeeze = nn.Linear(channels, hidden)
        self.expand = nn.Linear(hidden, channels)

    def forward(self, x, shortcut):
        """Average, gate, add and clamp."""
        hidden = torch.relu(self.squeeze(x.mean(dim=(2, 3))))
        gates = torch.sigmoid(self.expand(hidden))
        return torch.relu(shortcut + x * gates[:, :, None, None])


def get_inputs():
    """A batch of feature maps, and what they are added to."""
    return [torch.randn(2, 48, 20, 28), torch.randn(2, 48, 20, 28)]


def get_init_inputs():
    """The number of channels, and of hidden units."""
    return [48, 6]
