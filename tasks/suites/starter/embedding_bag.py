"""Weighted embedding bag: gather rows of a table, scale each, add up those of one bag, as recommenders do.

Category: index
Dtype: float32
"""

import torch
import torch.nn as nn

ROWS = 20000
FEATURES = 128
BAGS = 1024
BAG_SIZE = 32


class Model(nn.Module):
    """sum over j of weights[i, j] * table[indices[i, j]]."""

    def forward(self, table, indices, weights):
        rows = table[indices]
        return (rows * weights[:, :, None]).sum(dim=1)


def get_inputs():
    return [
        torch.randn(ROWS, FEATURES),
        torch.randint(0, ROWS, (BAGS, BAG_SIZE)),
        torch.rand(BAGS, BAG_SIZE),
    ]


def get_init_inputs():
    return []
