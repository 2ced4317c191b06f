"""A model's state, inside a runner: which tensors it is, and giving new parameters values that are not all alike.

New norms have weights of one and biases of zero; a candidate that leaves them out would be right as long as that holds.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..protocol.tensors import DTYPES

_STATISTICS = ("running_mean", "running_var")
_INTERNAL = ("_parameters", "_buffers", "_modules")
_MAX_PLAIN = 1000  # tensors that are neither parameters nor buffers


def of_model(model: Any) -> dict[str, torch.Tensor]:
    """The state dict's tensors by name; none if it is no module."""
    state = model.state_dict() if isinstance(model, torch.nn.Module) else {}
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def all_tensors(model: Any) -> dict[str, torch.Tensor]:
    """The state dict's tensors and those kept as plain attributes, by name: where a candidate may have its weights."""
    found = of_model(model)
    for name, value in _plain(model):
        if len(found) >= _MAX_PLAIN:
            break
        found.setdefault(name, value)
    return found


def some_tensors(model: Any, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Those of these names, as `all_tensors` calls them; without going through all, as far as can be."""
    model = getattr(model, "_orig_mod", model)  # torch.compile's
    found = {name: value for name in names if (value := _registered(model, name)) is not None}
    if len(found) < len(names):
        found |= {name: value for name, value in all_tensors(model).items() if name in names}
    return found


def _registered(model: Any, name: str) -> torch.Tensor | None:
    """The parameter or buffer of this name; None if there is none that a module tells of in the usual way."""
    *path, last = name.split(".")
    for part in path:
        model = getattr(model, "_modules", {}).get(part)
    value = getattr(model, "_parameters", {}).get(last)
    value = getattr(model, "_buffers", {}).get(last) if value is None else value
    return value if isinstance(value, torch.Tensor) else None


def vary(model: Any, seed: int) -> None:
    """Change the floating-point parameters and running statistics, in place, each element by another factor.

    Signs stay, and so do zeros among other numbers (a padding row). A tensor of zeros alone becomes small and positive.
    Other buffers stay as they are: they may be masks and tables.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in _varied(model):
            random = torch.rand(value.shape, generator=generator, dtype=torch.float32)
            if bool(value.any()):
                value.mul_((0.75 + 0.5 * random).to(value.real.dtype))
            else:
                value.copy_(0.02 + 0.18 * random)


def _varied(model: Any) -> Iterator[torch.Tensor]:
    if not isinstance(model, torch.nn.Module):
        return
    named = [(name, value) for name, value in model.named_buffers() if name.rpartition(".")[2] in _STATISTICS]
    for value in [*model.parameters(), *(value for _, value in named)]:
        if (value.is_floating_point() or value.is_complex()) and value.numel() > 0:
            yield value


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
    return known and value.layout == torch.strided and value.device.type == "cpu" and not value.is_conj()
