"""Input families: the task's own inputs, and changes to them that shortcuts do not survive.

Runs in the reference runner. Only floating-point tensors are changed. A tensor that holds no negative value is taken
to be non-negative by nature (a variance, a probability), so its sign is left alone.
"""

from typing import Any

import torch

FAMILIES = ("as generated", "as generated, other seed", "sign flipped", "scaled up", "scaled down", "zeros and repeats")
NON_FINITE = "NaN and Inf"


def apply(family: str, values: list[Any], seed: int) -> list[Any]:
    """The inputs of a family. `seed` makes random positions repeatable.

    Raises:
        ValueError: no such family.
    """
    generator = torch.Generator().manual_seed(seed ^ 0x5EED)
    return [_change(family, value, generator) if _is_float(value) else value for value in values]


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 0


def _change(family: str, value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if family.startswith("as generated"):
        return value
    value = value.clone(memory_format=torch.preserve_format)
    if family == "sign flipped":
        return value.neg_() if bool((value < 0).any()) else value
    if family == "scaled up":
        return value.mul_(16.0)
    if family == "scaled down":
        return value.mul_(2.0**-10)
    if family == "zeros and repeats":
        positions = torch.randint(value.numel(), (max(1, value.numel() // 4),), generator=generator)
        scattered = _flat(value)
        scattered[positions] = 0.0
        repeated = torch.randint(value.numel(), (max(1, value.numel() // 8),), generator=generator)
        scattered[repeated] = scattered[int(repeated[0])].clone()
        return scattered.view(value.shape)
    if family == NON_FINITE:
        flat = _flat(value)
        for number in (float("nan"), float("inf"), float("-inf")):
            flat[torch.randint(value.numel(), (2,), generator=generator)] = number
        return flat.view(value.shape)
    raise ValueError(f"family: unknown {family!r}")


def _flat(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous().view(-1)
