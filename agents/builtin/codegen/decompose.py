"""Decompositions besides TorchInductor's own: small matrix products as sums, and linear interpolation."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

SMALL_PRODUCTS = "kernelwright.small_products"
"""Option: matrix products whose left operand has at most so many rows become sums, which TorchInductor can fuse."""

aten = torch.ops.aten


def decompositions(rows: int) -> dict[Any, Callable[..., Any]] | None:
    """TorchInductor's table with products of at most `rows` rows added; 0: None, which means its own table."""
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


def interpolate_linear(
    image: torch.Tensor, output_size: Sequence[int], align_corners: bool, scales: Sequence[float | None]
) -> torch.Tensor:
    """Linear interpolation as in torch's eager kernels: the sum of all neighbours times their weights.

    Torch's own decomposition computes `a + (b - a) * t`, which is NaN for an infinite neighbour where eager's result is
    not. This function replaces `torch._decomp.decompositions._upsample_linear`.

    Args:
        image: of shape (batch, channels, size, ...).
        output_size: the wanted sizes.
        align_corners: as in `torch.nn.functional.interpolate`.
        scales: scale factors by dimension, or None.
    """
    import torch._decomp.decompositions as own

    scale_of: Any = own._compute_scale
    source_index: Any = own._compute_source_index
    sizes = image.shape[2:]
    kind = image.dtype if image.dtype in (torch.float32, torch.float64) else torch.float32
    sides: list[list[tuple[torch.Tensor, torch.Tensor]]] = []
    for position, (size, wanted, scale) in enumerate(zip(sizes, output_size, scales, strict=True)):
        steps = torch.arange(wanted, device=image.device).to(kind)
        ratio = scale_of(size, wanted, align_corners, scale)
        place: torch.Tensor = source_index(ratio, steps, align_corners).clamp(min=0.0)
        place = place.reshape(-1, *[1] * (len(sizes) - 1 - position))
        first = place.to(torch.int64)
        second = (first + 1).clamp(max=size - 1)
        share = (place - first).clamp(0.0, 1.0)
        sides.append([(first, 1.0 - share), (second, share)])
    parts = []
    for corner in itertools.product(*sides):
        value = aten._unsafe_index(image, [None, None, *(index for index, _ in corner)]).to(kind)
        for _, weight in reversed(corner):
            value = value * weight
        parts.append(value)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    if not image.is_floating_point():
        total = total.round()
    layout = torch._prims_common.suggest_memory_format(image)
    result: torch.Tensor = total.to(image.dtype).contiguous(memory_format=layout)
    return result
