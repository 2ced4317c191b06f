"""Memory of the referee's on the GPU, opened in a runner and seen as tensors of torch."""

import ctypes
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
        """The address at which memory of the referee's is opened here. It is never closed; the descriptor may be."""
        ...

    def at(self, address: int, nbytes: int) -> torch.Tensor:
        """Bytes on the device as a tensor, without a copy."""
        ...

    def wait(self) -> None:
        """Until the device has done all that this process asked of it."""
        ...


class _Bytes:
    """What torch takes for an array on a GPU (https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html)."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }


class CudaMemory:
    """See `Memory`. torch's context is used, which is made when memory is opened first."""

    device = "cuda"

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None

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
        return address

    def at(self, address: int, nbytes: int) -> torch.Tensor:
        """See `Memory`."""
        if not nbytes:
            return torch.empty(0, dtype=torch.uint8, device=self.device)
        return torch.as_tensor(_Bytes(address, nbytes), device=self.device)

    def wait(self) -> None:
        """See `Memory`."""
        torch.cuda.synchronize()

    def _call(self, name: str, *arguments: Any) -> None:
        status = int(getattr(self._library, name)(*arguments))
        if status:
            raise RuntimeError(f"the referee's memory cannot be opened: {name}: status {status}")


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
