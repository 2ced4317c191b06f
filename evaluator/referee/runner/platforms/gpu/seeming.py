"""Tensors of the host that seem to lie on a GPU, to a candidate's own checks, and torch.cuda as if a GPU were there."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_GPU = "cuda"
_IS_CUDA: Any = getattr(torch.Tensor.is_cuda, "__get__")  # noqa: B009 - of a descriptor
_IS_CPU: Any = getattr(torch.Tensor.is_cpu, "__get__")  # noqa: B009
_DEVICE: Any = getattr(torch.Tensor.device, "__get__")  # noqa: B009


_EMPTY = frozenset({
    torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty, torch.Tensor.new_empty_strided,
})  # fmt: skip
"""What gives memory that holds nothing yet."""


class SeemingCuda(TorchFunctionMode):
    """While it is entered, tensors say that they lie on a GPU, and what is asked for on a GPU is made on the host."""

    def __torch_function__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func == _IS_CUDA:
            return True
        if func == _IS_CPU:
            return False
        if func == _DEVICE:
            return torch.device(_GPU, 0)
        if func == torch.Tensor.cuda:
            return args[0]
        changed = {name: _on_host(value) for name, value in (kwargs or {}).items() if name != "pin_memory"}
        made = func(*map(_on_host, args), **changed)
        return _poisoned(made) if func in _EMPTY else made


def _poisoned(value: torch.Tensor) -> torch.Tensor:
    """The tensor, in whose memory NaN lies, or what shows as well, until something is written."""
    if value.dtype == torch.bool:
        return value.fill_(True)
    value.untyped_storage().fill_(0xFF)  # type: ignore[attr-defined]  # a method that stubs lack
    return value


def _on_host(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == _GPU:
        return torch.device("cpu")
    if isinstance(value, str) and value.partition(":")[0] == _GPU:
        return "cpu"
    return value


class _Stream:
    """A stream of torch.cuda: everything is done when it is asked for."""

    cuda_stream = 0

    def synchronize(self) -> None:
        """Nothing is left to be done."""

    def wait_stream(self, _: Any) -> None:
        """Nothing is left to be done."""

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: Any) -> None:
        """Nothing to do."""


@dataclass(frozen=True)
class Properties:
    """What `torch.cuda.get_device_properties` tells of a device."""

    name: str
    major: int
    minor: int
    multi_processor_count: int
    total_memory: int
    warp_size: int


A100 = Properties("NVIDIA A100-SXM4-80GB", 8, 0, 108, 80 << 30, 32)
"""As the emulation's `cudaGetDeviceProperties` describes it."""


def pretend(properties: Properties = A100) -> None:
    """Have `torch.cuda` of this process say that there is a GPU."""
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "get_device_name": lambda device=None: properties.name,
        "get_device_capability": lambda device=None: (properties.major, properties.minor),
        "get_device_properties": lambda device=None: properties,
        "current_stream": lambda device=None: _Stream(),
        "default_stream": lambda device=None: _Stream(),
        "Stream": lambda *_, **__: _Stream(),
        "stream": _stream,
        "device": _stream,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)


@contextlib.contextmanager
def _stream(_: Any = None) -> Iterator[None]:
    yield
