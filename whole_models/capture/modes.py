"""Which submodules of a model look at their mode, training or evaluation, when they are called."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


def reads_mode(module: torch.nn.Module, call: Callable[[], Any]) -> list[str]:
    """The paths of the submodules whose `training` is read while `call` runs; all of them where that cannot be told."""
    paths = {id(part): path for path, part in module.named_modules()}
    read: set[int] = set()
    try:
        with _watched(module, read):
            call()
    except Exception:
        return list(paths.values())
    return [path for each, path in paths.items() if each in read]


@contextmanager
def other_modes(module: torch.nn.Module, paths: list[str]) -> Iterator[None]:
    """Put these submodules into the other mode in the block, each by itself."""
    parts = [module.get_submodule(path) for path in paths]
    before = [part.training for part in parts]
    try:
        for part, mode in zip(parts, before, strict=True):
            part.training = not mode
        yield
    finally:
        for part, mode in zip(parts, before, strict=True):
            part.training = mode


@contextmanager
def _watched(module: torch.nn.Module, read: set[int]) -> Iterator[None]:
    """Add the identity of each submodule to `read` when its mode is read in the block.

    Each has a class of its own meanwhile, in which the mode is a property.
    """
    watching: dict[type, type] = {}
    own = [(part, type(part)) for part in module.modules()]
    try:
        for part, kind in own:
            if kind not in watching:
                watching[kind] = _watching(kind, read)
            part.__class__ = watching[kind]
        yield
    finally:
        for part, kind in own:
            with suppress(TypeError):  # it was not given another class
                part.__class__ = kind


def _watching(kind: type, read: set[int]) -> type:
    def get(self: torch.nn.Module) -> bool:
        read.add(id(self))
        return bool(vars(self)["training"])

    def put(self: torch.nn.Module, mode: bool) -> None:
        vars(self)["training"] = mode

    own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "training": property(get, put)}
    return type(kind)(kind.__name__, (kind,), own)
