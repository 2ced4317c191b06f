"""A model's state, within a runner: which tensors belong to it, and how new parameters get values that differ.

A new norm has weights of one and biases of zero. A candidate that leaves them out would be right as long as that holds,
and so would one that takes a maximum first and multiplies by the weight then, which is right for positive ones.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..protocol.tensors import DTYPES

_STATISTICS = ("running_mean", "running_var")
_INTERNAL = ("_parameters", "_buffers", "_modules")
_MAX_PLAIN = 1000  # tensors beyond which plain attributes are no longer collected


def of_model(model: Any) -> dict[str, torch.Tensor]:
    """The state dict's tensors by name; none if the model is no torch.nn.Module."""
    state = model.state_dict() if isinstance(model, torch.nn.Module) else {}
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def all_tensors(model: Any) -> dict[str, torch.Tensor]:
    """The state dict's tensors and tensors in plain attributes, by name: a candidate may keep its weights in either."""
    found = of_model(model)
    for name, value in _plain(model):
        if len(found) >= _MAX_PLAIN:
            break
        found.setdefault(name, value)
    return found


def some_tensors(model: Any, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """The tensors of these names, in the naming of `all_tensors`. Registered tensors are found without a search."""
    model = getattr(model, "_orig_mod", model)  # torch.compile wraps the model
    found = {name: value for name in names if (value := _registered(model, name)) is not None}
    if len(found) < len(names):
        found |= {name: value for name, value in all_tensors(model).items() if name in names}
    return found


def _registered(model: Any, name: str) -> torch.Tensor | None:
    """The parameter or buffer that is registered under this name; None if there is none."""
    *path, last = name.split(".")
    for part in path:
        model = getattr(model, "_modules", {}).get(part)
    value = getattr(model, "_parameters", {}).get(last)
    value = getattr(model, "_buffers", {}).get(last) if value is None else value
    return value if isinstance(value, torch.Tensor) else None


def vary(model: Any, seed: int, *, signs: bool = False) -> bool:
    """Multiply each element of the floating-point parameters and running statistics by a random factor, in place.

    Signs stay, and so do zeros among other numbers (a padding row). A tensor of zeros alone gets small positive values.
    Other buffers stay as they are, because they may be masks and tables.

    Args:
        model: the model.
        seed: of the factors.
        signs: whether half of the elements become negative where a tensor holds one number everywhere, as the weights
            and biases of a new norm do. Single numbers and variances keep their signs.

    Returns:
        Whether any sign has changed.
    """
    generator = torch.Generator().manual_seed(seed)
    changed = False
    with torch.no_grad():
        for name, value in _varied(model):
            mixed = signs and name != "running_var" and value.numel() > 1 and bool((value == value.flatten()[0]).all())
            factors = torch.rand(value.shape, generator=generator, dtype=torch.float32)
            if bool(value.any()):
                factors = 0.75 + 0.5 * factors
            else:
                value.fill_(1.0)
                factors = 0.02 + 0.18 * factors
            if mixed:
                half = torch.randperm(value.numel(), generator=generator)[: value.numel() // 2]
                factors.view(-1)[half] *= -1.0
                changed = True
            value.mul_(factors.to(value.device, value.real.dtype))
    return changed


def _varied(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor that is varied, and the last part of its name."""
    if not isinstance(model, torch.nn.Module):
        return
    named = [(name.rpartition(".")[2], value) for name, value in model.named_buffers()]
    named = [(name, value) for name, value in named if name in _STATISTICS]
    for name, value in [*((name, value) for name, value in model.named_parameters()), *named]:
        if (value.is_floating_point() or value.is_complex()) and value.numel() > 0:
            yield name, value


def _plain(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    owners = model.named_modules() if isinstance(model, torch.nn.Module) else [("", model)]
    for prefix, owner in owners:
        for name, value in getattr(owner, "__dict__", {}).items():
            if name not in _INTERNAL:
                yield from _tensors_in(f"{prefix}.{name}".lstrip("."), value)


def _tensors_in(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    items: list[tuple[Any, Any]] = [("", value)]
    if isinstance(value, list | tuple):
        items = [(f"[{index}]", item) for index, item in enumerate(value)]
    elif isinstance(value, dict):
        items = [(f"[{key!r}]", item) for key, item in value.items()]
    for suffix, item in items:
        if type(item) in (torch.Tensor, torch.nn.Parameter) and _readable(item):
            yield name + suffix, item


def _readable(value: torch.Tensor) -> bool:
    known = str(value.dtype).removeprefix("torch.") in DTYPES
    return known and value.layout == torch.strided and value.device.type in ("cpu", "cuda") and not value.is_conj()


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a nested value, in the order in which a tree counts them."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for each in value for tensor in tensors_in(each)]
    if isinstance(value, dict):
        return [tensor for each in value.values() for tensor in tensors_in(each)]
    return []
