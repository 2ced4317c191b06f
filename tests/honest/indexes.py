# honest: an embedding and a loss: integers that are indexes, which cannot be large
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.table = nn.Embedding(rows, width, padding_idx=0)

    def forward(self, index, target):
        found = self.table(index)
        return found, nn.functional.cross_entropy(found, target)


def get_inputs():
    return [torch.randint(0, 1000, (256,)), torch.randint(0, 64, (256,))]


def get_init_inputs():
    return [1000, 64]


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.table = torch.nn.Embedding(rows, width, padding_idx=0)

    def forward(self, index, target):
        found = self.table.weight.index_select(0, index)
        picked = found.gather(1, target[:, None])[:, 0]
        return found, (found.logsumexp(1) - picked).mean()
