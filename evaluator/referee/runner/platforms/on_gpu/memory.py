"""Memory of the referee's on the GPU, opened in a runner and seen as tensors of torch."""

import contextlib
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ....protocol.device_memory import FILE_DESCRIPTOR, mapped
from ....protocol.tensors import DTYPES, TensorRow

_LIBRARY = "libcuda.so.1"


class Memory(Protocol):
    """The device's memory, as this process reaches it."""

    @property
    def device(self) -> str:
        """What torch calls the device."""
        ...

    def open(self, fd: int, nbytes: int) -> int:
        """The address at which memory of the referee's is opened here. The descriptor may be closed then."""
        ...

    def close(self, address: int) -> None:
        """Close what was opened at an address, once no tensor lies there any more."""
        ...

    def at(self, address: int, nbytes: int) -> torch.Tensor:
        """Bytes on the device as a tensor, without a copy."""
        ...

    def wait(self) -> None:
        """Until the device has done all that this process asked of it."""
        ...


class _Bytes:
    """What torch takes for an array on a GPU (https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html)."""

    def __init__(self, address: int, nbytes: int, region: "_Region | None") -> None:
        self._region = region  # torch holds this object for as long as a tensor lies there
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }


@dataclass
class _Region:
    """Memory of the referee's that is open here, until nobody holds this object."""

    address: int
    nbytes: int
    call: Callable[..., None]

    def __del__(self) -> None:
        """Give back the addresses, and with them the memory, if the referee has given it back, too."""
        with contextlib.suppress(RuntimeError, AssertionError):  # of a device that has failed, which calls tell
            torch.cuda.synchronize()
            for name in ("cuMemUnmap", "cuMemAddressFree"):
                self.call(name, ctypes.c_ulonglong(self.address), ctypes.c_size_t(self.nbytes))


class CudaMemory:
    """See `Memory`. torch's context is used, which is made when memory is opened first."""

    device = "cuda"

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None
        self._regions: dict[int, _Region] = {}  # those that are not closed, by their addresses

    def open(self, fd: int, nbytes: int) -> int:
        """See `Memory`.

        Raises:
            RuntimeError: the driver refuses.
        """
        if self._library is None:
            torch.zeros(1, device=self.device)  # makes the context, and makes it current on this thread
            self._library = ctypes.CDLL(_LIBRARY)
        handle, kind = ctypes.c_ulonglong(), ctypes.c_int(FILE_DESCRIPTOR)
        self._call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), kind)
        address = mapped(self._call, handle, nbytes)
        self._call("cuMemRelease", handle)  # what is mapped stays
        self._regions[address] = _Region(address, nbytes, self._call)
        return address

    def close(self, address: int) -> None:
        """See `Memory`."""
        self._regions.pop(address, None)

    def at(self, address: int, nbytes: int) -> torch.Tensor:
        """See `Memory`."""
        if not nbytes:
            return torch.empty(0, dtype=torch.uint8, device=self.device)
        inside = (each for each in self._regions.values() if each.address <= address < each.address + each.nbytes)
        return torch.as_tensor(_Bytes(address, nbytes, next(inside, None)), device=self.device)

    def wait(self) -> None:
        """See `Memory`."""
        torch.cuda.synchronize()

    def _call(self, name: str, *arguments: Any) -> None:
        status = int(getattr(self._library, name)(*arguments))
        if status:
            raise RuntimeError(f"the referee's memory cannot be opened or closed: {name}: status {status}")


def view_at(memory: Memory, base: int, row: TensorRow) -> torch.Tensor:
    """The tensor of a row whose place is an offset from an address."""
    dtype = DTYPES[row.dtype]
    if row.span_bytes == 0:
        return torch.empty(row.shape, dtype=dtype, device=memory.device)
    flat: Any = memory.at(base + row.place, row.span_bytes)
    found: torch.Tensor = flat.view(dtype).as_strided(row.shape, row.stride)
    return found


def span_of(tensor: torch.Tensor, nbytes: int) -> torch.Tensor:
    """The bytes of a tensor's whole span, gaps between its elements included, without a copy."""
    start = tensor.storage_offset() * tensor.element_size()
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return raw.set_(tensor.untyped_storage(), start, (nbytes,), (1,))
