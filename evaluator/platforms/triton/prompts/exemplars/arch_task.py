"""Squeeze and excitation: channels weighted by a small network that sees their means, then a residual and ReLU."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """relu(shortcut + x * sigmoid(expand(relu(squeeze(mean(x))))))."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.squeeze = nn.Linear(channels, hidden)
        self.expand = nn.Linear(hidden, channels)

    def forward(self, x, shortcut):
        """Weigh the channels of x and add the shortcut; both are (images, channels, height, width)."""
        hidden = torch.relu(self.squeeze(x.mean(dim=(2, 3))))
        gates = torch.sigmoid(self.expand(hidden))
        return torch.relu(shortcut + x * gates[:, :, None, None])


def get_inputs():
    """Feature maps and what goes around them."""
    return [torch.randn(2, 40, 18, 20), torch.randn(2, 40, 18, 20)]


def get_init_inputs():
    """The numbers of channels and of hidden units."""
    return [40, 6]
