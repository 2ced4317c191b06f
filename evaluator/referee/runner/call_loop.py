"""The compiled loop of a timed call (`native/call_loop.cpp`), where the sandbox has it."""

import importlib.util
from typing import Any, Protocol, cast

import torch

from ..protocol.call_messages import CODES
from .native import prepare


class CallLoop(Protocol):
    """The compiled module; see `call_loop.cpp`."""

    def call(self, fd: int, ready: bytes, model: Any, arguments: tuple[Any, ...], kept: list[Any]) -> Any:
        """Say `ready`, wait for the go, call the model, answer.

        Returns:
            None once it has answered; the bytes of a go that has another form than the shortest; or a tuple that holds
            the model's value, if the answer has another form than `call_messages.pack` gives it.

        Raises:
            OSError: the referee is gone.
            Exception: what the model raises.
        """
        ...

    def set_codes(self, codes: dict[torch.dtype, int]) -> None:
        """Set the number that stands for each dtype in answers."""
        ...


def load() -> CallLoop | None:
    """The module, as the sandbox has it ready; None if it has none of this source: Python does the same then."""
    path = prepare.place()
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location("call_loop", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    loop = cast("CallLoop", module)
    loop.set_codes(CODES)
    return loop
