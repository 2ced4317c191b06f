"""Two residual blocks of a ResNet: one that halves the sides and doubles the channels, and one that keeps them.

The constructor sets the module to eval: the batch norms use the stored statistics, which are drawn at random.

Category: arch
Dtype: float32
"""

import torch
import torch.nn as nn

BATCH = 6
CHANNELS = 64
SIDE = 40


def _batch_norm(channels):
    """A batch norm with weights and statistics that are not the default ones."""
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias, std=0.2)
    nn.init.normal_(norm.running_mean, std=0.2)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    return norm


def _convolution(inputs, outputs, kernel_size, stride=1):
    """A convolution without bias whose outputs have unit variance where the inputs do."""
    layer = nn.Conv2d(inputs, outputs, kernel_size, stride, padding=kernel_size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
    return layer


class Block(nn.Module):
    """ReLU(norm(conv(ReLU(norm(conv(x))))) + shortcut(x)), with 3 x 3 convolutions."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Sequential(_convolution(inputs, outputs, 3, stride), _batch_norm(outputs))
        self.second = nn.Sequential(_convolution(outputs, outputs, 3), _batch_norm(outputs))
        if stride == 1 and inputs == outputs:
            self.shortcut = nn.Identity()
        else:
            self.shortcut = nn.Sequential(_convolution(inputs, outputs, 1, stride), _batch_norm(outputs))

    def forward(self, x):
        y = self.second(torch.relu(self.first(x)))
        return torch.relu(y + self.shortcut(x))


class Model(nn.Module):
    """A block with stride 2 and a projected shortcut, then one with an identity as shortcut."""

    def __init__(self, channels):
        super().__init__()
        self.down = Block(channels, 2 * channels, stride=2)
        self.same = Block(2 * channels, 2 * channels, stride=1)
        self.eval()

    def forward(self, x):
        return self.same(self.down(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
