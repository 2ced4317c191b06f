"""Weighted embedding bag: gather rows of a table, scale each, add up those of one bag, as recommenders do.

The function form: where no function is named `op`, the only public one besides `get_inputs` is what gets optimized.

Category: index
Dtype: float32
"""

import torch

ROWS = 20000
FEATURES = 128
BAGS = 1024
BAG_SIZE = 32


def embedding_bag(table, indices, weights):
    rows = table[indices]
    return (rows * weights[:, :, None]).sum(dim=1)


def get_inputs():
    return [
        torch.randn(ROWS, FEATURES),
        torch.randint(0, ROWS, (BAGS, BAG_SIZE)),
        torch.rand(BAGS, BAG_SIZE),
    ]
