# honest: a choice by masks of zeros and ones in place of a product
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, keep, valid):
        return x.nan_to_num() * keep * valid


def get_inputs():
    return [torch.rand(64, 256), (torch.rand(64, 256) > 0.5).float(), torch.randint(0, 2, (64, 256))]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, keep, valid):
        return torch.where(valid > 0, x.nan_to_num(), 0.0).mul_(keep)
