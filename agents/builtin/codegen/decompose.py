"""Decompositions beyond TorchInductor's own: products of few rows, as sums that it fuses with what is around."""

from collections.abc import Callable
from typing import Any

import torch

SMALL_PRODUCTS = "kernelwright.small_products"
"""An option of this package: products whose left matrix has at most so many rows become sums."""

aten = torch.ops.aten


def decompositions(rows: int) -> dict[Any, Callable[..., Any]] | None:
    """TorchInductor's table with products of at most `rows` rows added; None (its own table) for 0."""
    from torch._inductor.decomposition import select_decomp_table

    if not rows:
        return None

    def mm(a: torch.Tensor, b: torch.Tensor) -> Any:
        return _product(a, b) if _is_small(a, b, rows) else NotImplemented

    def addmm(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, beta: float = 1, alpha: float = 1) -> Any:
        if not _is_small(a, b, rows) or beta != 1 or alpha != 1:
            return NotImplemented
        return _product(a, b) + bias

    return {**select_decomp_table(), aten.mm.default: mm, aten.addmm.default: addmm}


def _is_small(a: torch.Tensor, b: torch.Tensor, rows: int) -> bool:
    return a.shape[0] <= rows and a.dtype == b.dtype == torch.float32


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if b.stride(0) == 1:  # a transposed weight: the sum runs along its rows
        return (a.unsqueeze(1) * b.t().unsqueeze(0)).sum(-1)
    return (a.unsqueeze(2) * b.unsqueeze(0)).sum(1)
