"""A shortened VGG: stages of two 3 x 3 convolutions with ReLU and a max pool, then a classifier of two layers.

Category: arch
Dtype: float32
"""

import torch
import torch.nn as nn

BATCH = 2
COLOURS = 3
SIDE = 64
WIDTHS = [48, 96, 192]
HIDDEN = 256
CLASSES = 100


class Model(nn.Module):
    """Logits of the classes of each image."""

    def __init__(self, colours, side, widths, hidden, classes):
        super().__init__()
        stages = []
        for before, width in zip([colours, *widths[:-1]], widths, strict=True):
            stages += [
                nn.Conv2d(before, width, kernel_size=3, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, width, kernel_size=3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(kernel_size=2),
            ]
        self.features = nn.Sequential(*stages)
        side = side // 2 ** len(widths)
        self.hidden = nn.Linear(widths[-1] * side * side, hidden)
        self.classes = nn.Linear(hidden, classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight)  # keeps the scale through ReLU, which the default does not

    def forward(self, images):
        x = torch.flatten(self.features(images), start_dim=1)
        return self.classes(torch.relu(self.hidden(x)))


def get_inputs():
    return [torch.randn(BATCH, COLOURS, SIDE, SIDE)]


def get_init_inputs():
    return [COLOURS, SIDE, WIDTHS, HIDDEN, CLASSES]
