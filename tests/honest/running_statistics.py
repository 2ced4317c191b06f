# honest: a batch norm by hand, which keeps running statistics as the reference does
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(8, 16, 16, 16)]


def get_init_inputs():
    return [16]


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(channels)

    def forward(self, x):
        norm, count = self.norm, x.numel() // x.shape[1]
        variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (count / (count - 1)), norm.momentum)
        norm.num_batches_tracked += 1
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        centred = x - mean[:, None, None]
        return (centred * scale[:, None, None] + norm.bias[:, None, None]).relu_()
