"""What referee and runners agree on about memory on a GPU that the referee owns, and where outputs go in it."""

import ctypes
from collections.abc import Callable, Sequence

from .tensors import TensorRow, aligned

OUTPUT_ALIGNMENT = 256  # as strict as any vector access of a GPU

# Of CUDA's driver interface, "Virtual Memory Management" (cuda.h).
FILE_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
NO_FLAGS = ctypes.c_ulonglong(0)
_ON_DEVICE, _READ_AND_WRITE = 1, 3  # CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE


class Location(ctypes.Structure):
    """CUmemLocation: by default the only device that a process of an evaluation sees."""

    _fields_ = (("kind", ctypes.c_int), ("number", ctypes.c_int))

    def __init__(self) -> None:
        super().__init__(_ON_DEVICE, 0)


class Access(ctypes.Structure):
    """CUmemAccessDesc: that device may read and write."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))

    def __init__(self) -> None:
        super().__init__(Location(), _READ_AND_WRITE)


def mapped(call: Callable[..., None], handle: ctypes.c_ulonglong, nbytes: int) -> int:
    """The address at which an allocation can be reached in this process from now on.

    Args:
        call: calls a function of the driver by its name and arguments, and raises what the driver refuses.
        handle: the allocation, made or imported here.
        nbytes: its whole size.
    """
    address, size, nothing = ctypes.c_ulonglong(), ctypes.c_size_t(nbytes), ctypes.c_size_t(0)
    call("cuMemAddressReserve", ctypes.byref(address), size, nothing, ctypes.c_ulonglong(0), NO_FLAGS)
    call("cuMemMap", address, size, nothing, handle, NO_FLAGS)
    call("cuMemSetAccess", address, size, ctypes.byref(Access()), ctypes.c_size_t(1))
    return int(address.value)


def on_device(row: TensorRow) -> bool:
    """Whether a tensor lies on a GPU, as the runner says."""
    return row.device.partition(":")[0] == "cuda"


def output_offsets(rows: Sequence[TensorRow]) -> tuple[list[int], int]:
    """Where in the memory for outputs each tensor's span goes, and how many bytes all of them need.

    Both sides compute it, so nothing about it is told.
    """
    offsets, end = [], 0
    for row in rows:
        offsets.append(end)
        end += -(-aligned(row.span_bytes) // OUTPUT_ALIGNMENT) * OUTPUT_ALIGNMENT
    return offsets, end
