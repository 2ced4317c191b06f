"""Two units of a ShuffleNet: grouped 1 x 1 convolutions, a shuffle of channels between groups, a depthwise convolution.

The first unit halves the sides and puts a pooled copy of its input beside its output. The second adds its input to its
output. The constructor sets the module to eval: the batch norms use the stored statistics, which are drawn at random.

Category: arch
Dtype: float32
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8
CHANNELS = 144
SIDE = 48
GROUPS = 3


def _batch_norm(channels):
    """A batch norm with weights and statistics that are not the default ones."""
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias, std=0.2)
    nn.init.normal_(norm.running_mean, std=0.2)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    return norm


def _convolution(inputs, outputs, kernel_size, groups, stride=1):
    """A convolution without bias whose outputs have unit variance where the inputs do."""
    layer = nn.Conv2d(inputs, outputs, kernel_size, stride, kernel_size // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
    return layer


def _shuffled(x, groups):
    """The channels with the first of every group first, then the second of every group, and so on."""
    batch, channels, height, width = x.shape
    split = x.view(batch, groups, channels // groups, height, width)
    return split.transpose(1, 2).reshape(batch, channels, height, width)


class Unit(nn.Module):
    """Narrow, shuffle, filter each channel, widen; then join with the input, added or (with stride 2) side by side."""

    def __init__(self, inputs, outputs, groups, stride):
        super().__init__()
        self.groups, self.stride = groups, stride
        middle = outputs // 4
        widened = outputs if stride == 1 else outputs - inputs
        self.narrow = nn.Sequential(_convolution(inputs, middle, 1, groups), _batch_norm(middle))
        self.depthwise = nn.Sequential(_convolution(middle, middle, 3, middle, stride), _batch_norm(middle))
        self.widen = nn.Sequential(_convolution(middle, widened, 1, groups), _batch_norm(widened))

    def forward(self, x):
        y = _shuffled(torch.relu(self.narrow(x)), self.groups)
        y = self.widen(self.depthwise(y))
        if self.stride == 1:
            return torch.relu(x + y)
        pooled = F.avg_pool2d(x, kernel_size=3, stride=2, padding=1)
        return torch.relu(torch.cat((pooled, y), dim=1))


class Model(nn.Module):
    """A unit with stride 2 that doubles the channels, then one that keeps everything."""

    def __init__(self, channels, groups):
        super().__init__()
        self.down = Unit(channels, 2 * channels, groups, stride=2)
        self.same = Unit(2 * channels, 2 * channels, groups, stride=1)
        self.eval()

    def forward(self, x):
        return self.same(self.down(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, GROUPS]
