"""A DLRM-style recommender: bags of table rows and an MLP of the dense features, their pairwise products, an MLP.

Category: arch
Dtype: float32
"""

import torch
import torch.nn as nn

BATCH = 4096
DENSE = 13
TABLES = 12
ROWS = 10000
BAG_SIZE = 8
FEATURES = 64
BOTTOM = [256, 128, FEATURES]
TOP = [256, 128]


def _mlp(inputs, sizes):
    """Linear layers with ReLU after each, whose outputs keep the scale of their inputs."""
    layers = []
    for before, after in zip([inputs, *sizes[:-1]], sizes, strict=True):
        linear = nn.Linear(before, after)
        nn.init.kaiming_normal_(linear.weight)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers)


class Model(nn.Module):
    """The probability of a click for each sample.

    The vectors of a sample are one for each table (the sum of the rows in its bag) and one of its dense features. The
    top MLP takes the latter and the dot product of each pair of vectors.
    """

    def __init__(self, dense, tables, rows, features, bottom, top, bag_size):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, features, mode="sum") for _ in range(tables))
        for table in self.tables:
            nn.init.normal_(table.weight, std=bag_size**-0.5)
        self.bottom = _mlp(dense, bottom)
        pairs = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("first", pairs[0])
        self.register_buffer("second", pairs[1])
        self.scale = features**-0.5  # of a product of two vectors with entries of unit variance
        self.top = _mlp(features + pairs.shape[1], top)
        self.click = nn.Linear(top[-1], 1)
        nn.init.kaiming_normal_(self.click.weight)

    def forward(self, dense, indices):
        summary = self.bottom(dense)
        bags = [table(indices[number]) for number, table in enumerate(self.tables)]
        vectors = torch.stack([summary, *bags], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)) * self.scale
        pairs = products[:, self.first, self.second]
        return torch.sigmoid(self.click(self.top(torch.cat((summary, pairs), dim=1)))).squeeze(1)


def get_inputs():
    return [torch.randn(BATCH, DENSE), torch.randint(0, ROWS, (TABLES, BATCH, BAG_SIZE))]


def get_init_inputs():
    return [DENSE, TABLES, ROWS, FEATURES, BOTTOM, TOP, BAG_SIZE]
