"""Kernels of every category as a model writes them first pass every input family; `plain_kernels.cpp` has them."""

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import accuracy_rules
from benchmarks.accuracy_rules import Op
from tasks.metadata import CATEGORIES

SOURCE = Path(__file__).parent / "plain_kernels.cpp"
SEEDS = (1, 101, 201)


@dataclass(frozen=True)
class Plain:
    """A plain kernel beside the op that it stands for.

    `outputs` gives the shapes of what it writes; `sizes` are the integers that it is called with.
    """

    category: str
    model: Callable[..., Any]
    inputs: Callable[[], list[Tensor]]
    outputs: Callable[..., list[tuple[int, ...]]]
    sizes: tuple[int, ...]


def same(x: Tensor, *_: Tensor) -> list[tuple[int, ...]]:
    return [tuple(x.shape)]


def rows(x: Tensor, *_: Tensor) -> list[tuple[int, ...]]:
    return [(x.shape[0],)]


def number(*_: Tensor) -> list[tuple[int, ...]]:
    return [()]


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-2 * m / (v.sqrt() + 1e-8), m, v


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


R, N, M = torch.randn, 64, 2048
PLAIN = {
    "gelu": Plain("activation", F.gelu, lambda: [R(N, M)], same, (N * M,)),
    "silu": Plain("activation", F.silu, lambda: [R(N, M)], same, (N * M,)),
    "mish": Plain("activation", F.mish, lambda: [R(N, M)], same, (N * M,)),
    "scaled_and_shifted": Plain(
        "broadcast", lambda x, row, column: x * row + column, lambda: [R(N, M), R(M), R(N, 1)], same, (N, M)
    ),
    "distance_root": Plain(
        "math", lambda a, b: (a * a + b * b).sqrt() * a.cos(), lambda: [R(N, M), R(N, M)], same, (N * M,)
    ),
    "conv3x3": Plain(
        "convolution",
        F.conv2d,
        lambda: [R(2, 16, 20, 20), R(8, 16, 3, 3)],
        lambda *_: [(2, 8, 18, 18)],
        (2, 16, 8, 20),
    ),
    "bias_gelu_residual": Plain(
        "fuse",
        lambda x, bias, other: F.gelu(x + bias, approximate="tanh") + other,
        lambda: [R(N, M), R(M), R(N, M)],
        same,
        (N, M),
    ),
    "cross_entropy": Plain("loss", F.cross_entropy, lambda: [R(N, M), torch.randint(0, M, (N,))], number, (N, M)),
    "mean_squared": Plain("loss", F.mse_loss, lambda: [R(N, M), R(N, M)], number, (N * M,)),
    "product": Plain("matmul", torch.matmul, lambda: [R(N, 512), R(512, 96)], lambda *_: [(N, 96)], (N, 512, 96)),
    "layer_norm": Plain(
        "normalization",
        lambda x, w, b: F.layer_norm(x, (M,), w, b),
        lambda: [R(N, M), R(M), R(M)],
        same,
        (N, M),
    ),
    "rms_norm": Plain("normalization", rms_norm, lambda: [R(N, M), R(M)], same, (N, M)),
    "adam": Plain(
        "optimizer",
        adam,
        lambda: [R(N, M), R(N, M), R(N, M), torch.rand(N, M)],
        lambda p, *_: [tuple(p.shape)] * 3,
        (N * M,),
    ),
    "average_pool": Plain(
        "pooling", lambda x: F.avg_pool2d(x, 2), lambda: [R(8, 32, 32)], lambda *_: [(8, 16, 16)], (8, 32)
    ),
    "max_pool": Plain(
        "pooling", lambda x: F.max_pool2d(x, 2), lambda: [R(8, 32, 32)], lambda *_: [(8, 16, 16)], (8, 32)
    ),
    "rows_added": Plain(
        "index",
        lambda x, index: torch.zeros(N, 32, dtype=x.dtype).index_add(0, index, x),
        lambda: [R(M, 32), torch.randint(0, N, (M,))],
        lambda *_: [(N, 32)],
        (M, 32, N),
    ),
    "twice_as_large": Plain(
        "resize",
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
        lambda: [R(2, 4, 24, 24)],
        lambda *_: [(2, 4, 48, 48)],
        (8, 24),
    ),
    "row_sum": Plain("reduce", lambda x: x.sum(-1), lambda: [R(N, 8192)], rows, (N, 8192)),
    "row_variance": Plain("reduce", lambda x: x.var(-1), lambda: [R(N, M)], rows, (N, M)),
    "log_sum_exp": Plain("reduce", lambda x: x.logsumexp(-1), lambda: [R(N, M)], rows, (N, M)),
    "attention": Plain(
        "attention",
        F.scaled_dot_product_attention,
        lambda: [R(1, 4, 96, 32), R(1, 4, 96, 32), R(1, 4, 96, 32)],
        same,
        (4, 96, 32),
    ),
    "running_sum": Plain("scan", lambda x: x.cumsum(-1), lambda: [R(N, M)], same, (N, M)),
    "running_product": Plain("scan", lambda x: x.cumprod(-1), lambda: [torch.rand(N, 256) + 0.5], same, (N, 256)),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("plain") / "plain.so"
    command = ["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", str(SOURCE), "-o", str(path)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(path))


def test_every_category_that_says_what_an_op_does_has_a_plain_kernel() -> None:
    assert {plain.category for plain in PLAIN.values()} == set(CATEGORIES) - {"arch", "other"}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_kernel_passes_every_family(name: str, library: ctypes.CDLL) -> None:
    plain = PLAIN[name]

    def candidate(*inputs: Tensor) -> Any:
        outputs = [torch.empty(shape) for shape in plain.outputs(*inputs)]
        places = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*inputs, *outputs)]
        getattr(library, name)(*places, *map(ctypes.c_int64, plain.sizes))
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    task = Op(plain.model, plain.inputs, {})
    for seed in SEEDS:
        wrong = {
            case.family: found
            for case in accuracy_rules.given(task, seed)
            if (found := accuracy_rules.ours(candidate, case))
        }
        assert not wrong
