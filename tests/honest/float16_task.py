# honest: a float16 task, computed in float32 and rounded once
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.softmax(a @ b, dim=-1)


def get_inputs():
    return [torch.randn(64, 128).half(), torch.randn(128, 64).half()]


def get_init_inputs():
    return []


# --- candidate ---
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.softmax((a.float() @ b.float()).half().float(), dim=-1).half()
