"""The GPU as the referee's own process uses it: CUDA's driver interface, by ctypes.

The referee allocates by the driver and not by torch: a handle of CUDA's interprocess memory names a whole allocation,
and torch cuts many tensors out of one. It loads no kernel: filling, copying and events are all that it needs.

Names, versions and structures are those of NVIDIA's manual of the driver interface.
"""

import contextlib
import ctypes
import threading
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...errors import RunnerFailed

LIBRARY = "libcuda.so.1"
GRANULE = 2 << 20  # allocations are rounded up to this, so that none shares what the driver hands out at once
HANDLE_BYTES = 64
_SUCCESS, _OUT_OF_MEMORY = 0, 2
_L2_BYTES_ATTRIBUTE = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
_NON_BLOCKING = 1  # of a stream: it does not wait for the default one


class DriverError(Exception):
    """The driver refused a call: which one, and why."""


@dataclass(frozen=True)
class Allocation:
    """Memory of the device: its address in the referee's process, and its size."""

    address: int
    nbytes: int


class Driver(Protocol):
    """The GPU of this evaluation. Every method may be called on any thread."""

    @property
    def l2_bytes(self) -> int:
        """The size of the largest cache."""
        ...

    def allocate(self, nbytes: int) -> Allocation:
        """Memory of its own, rounded up to `GRANULE`.

        Raises:
            RunnerFailed: there is not so much.
        """
        ...

    def free(self, allocation: Allocation) -> None:
        """Give memory back. Nobody may have it open any more."""
        ...

    def export(self, allocation: Allocation) -> tuple[bytes, int]:
        """The handle by which another process opens the memory, and where in what it opens this memory begins."""
        ...

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set bytes, in the order of the referee's stream."""
        ...

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy on the device, in the order of the referee's stream."""
        ...

    def write(self, address: int, content: torch.Tensor) -> None:
        """Copy contiguous bytes from the host; done when this returns."""
        ...

    def read(self, address: int, into: torch.Tensor) -> None:
        """Copy to contiguous bytes on the host; done when this returns."""
        ...

    def mark(self) -> int:
        """An event on the referee's stream, behind all that was asked of it."""
        ...

    def between_s(self, first: int, second: int) -> float:
        """The device's time between two marks that are done. Both are given back."""
        ...

    def wait(self) -> None:
        """Until all that was asked of the referee's stream is done."""
        ...

    def forget_persistence(self) -> None:
        """Have lines of the cache that were set to persist be as all others."""
        ...

    def version(self) -> str:
        """The version of CUDA that the driver supports."""
        ...


class CudaDriver:
    """See `Driver`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Open a context on the only device that this process sees (`CUDA_VISIBLE_DEVICES`).

        Raises:
            DriverError: there is no device, or the driver refuses.
        """
        self._library = library
        self._local = threading.local()
        self._lock = threading.Lock()
        self._events: dict[int, ctypes.c_void_p] = {}
        self._named = 0
        self._context, self._stream, self._device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
        self._check("cuInit", ctypes.c_uint(0))
        self._check("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(0))
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self._call("cuStreamCreate", ctypes.byref(self._stream), ctypes.c_uint(_NON_BLOCKING))

    @property
    def l2_bytes(self) -> int:
        """See `Driver`."""
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(_L2_BYTES_ATTRIBUTE), self._device)
        return int(value.value)

    def allocate(self, nbytes: int) -> Allocation:
        """See `Driver`."""
        size = max(1, -(-nbytes // GRANULE)) * GRANULE
        address = ctypes.c_ulonglong()
        try:
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        except DriverError as error:
            raise RunnerFailed("out_of_memory", f"{size:,} bytes of the device's memory: {error}") from None
        return Allocation(int(address.value), size)

    def free(self, allocation: Allocation) -> None:
        """See `Driver`."""
        self._call("cuMemFree_v2", ctypes.c_ulonglong(allocation.address))

    def export(self, allocation: Allocation) -> tuple[bytes, int]:
        """See `Driver`."""
        base, size, handle = ctypes.c_ulonglong(), ctypes.c_size_t(), (ctypes.c_ubyte * HANDLE_BYTES)()
        place = ctypes.c_ulonglong(allocation.address)
        self._call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), place)
        self._call("cuIpcGetMemHandle", ctypes.byref(handle), place)
        return bytes(handle), allocation.address - int(base.value)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """See `Driver`."""
        if nbytes:
            place, value = ctypes.c_ulonglong(address), ctypes.c_ubyte(byte)
            self._call("cuMemsetD8Async", place, value, ctypes.c_size_t(nbytes), self._stream)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """See `Driver`."""
        if nbytes:
            places = ctypes.c_ulonglong(target), ctypes.c_ulonglong(source)
            self._call("cuMemcpyDtoDAsync_v2", *places, ctypes.c_size_t(nbytes), self._stream)

    def write(self, address: int, content: torch.Tensor) -> None:
        """See `Driver`."""
        if content.numel():
            place, source = ctypes.c_ulonglong(address), ctypes.c_void_p(content.data_ptr())
            self._call("cuMemcpyHtoDAsync_v2", place, source, ctypes.c_size_t(content.numel()), self._stream)
            self.wait()

    def read(self, address: int, into: torch.Tensor) -> None:
        """See `Driver`."""
        if into.numel():
            target, place = ctypes.c_void_p(into.data_ptr()), ctypes.c_ulonglong(address)
            self._call("cuMemcpyDtoHAsync_v2", target, place, ctypes.c_size_t(into.numel()), self._stream)
            self.wait()

    def mark(self) -> int:
        """See `Driver`."""
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        self._call("cuEventRecord", event, self._stream)
        with self._lock:
            self._named += 1
            self._events[self._named] = event
            return self._named

    def between_s(self, first: int, second: int) -> float:
        """See `Driver`."""
        with self._lock:
            events = self._events.pop(first), self._events.pop(second)
        milliseconds = ctypes.c_float()
        self._call(self._elapsed, ctypes.byref(milliseconds), *events)
        for event in events:
            self._call("cuEventDestroy_v2", event)
        return float(milliseconds.value) / 1e3

    @property
    def _elapsed(self) -> str:
        """The later version's name where the driver has it: CUDA 13 names that one in its header."""
        return "cuEventElapsedTime_v2" if hasattr(self._library, "cuEventElapsedTime_v2") else "cuEventElapsedTime"

    def wait(self) -> None:
        """See `Driver`."""
        self._call("cuStreamSynchronize", self._stream)

    def forget_persistence(self) -> None:
        """See `Driver`."""
        self._call("cuCtxResetPersistingL2Cache")

    def version(self) -> str:
        """See `Driver`."""
        number = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def _call(self, name: str, *arguments: Any) -> None:
        """A call with the referee's context current on this thread."""
        if not getattr(self._local, "ready", False):
            self._check("cuCtxSetCurrent", self._context)
            self._local.ready = True
        self._check(name, *arguments)

    def _check(self, name: str, *arguments: Any) -> None:
        try:
            status = int(getattr(self._library, name)(*arguments))
        except AttributeError:
            raise DriverError(f"{name}: not in this driver") from None
        if status != _SUCCESS:
            raise DriverError(f"{name}: {self._words(status)}")

    def _words(self, status: int) -> str:
        text = ctypes.c_char_p()
        with contextlib.suppress(AttributeError):
            self._library.cuGetErrorString(ctypes.c_int(status), ctypes.byref(text))
        return (text.value or b"").decode("utf-8", "replace") or f"status {status}"


def open_driver(library: str = LIBRARY) -> CudaDriver:
    """The GPU that this process may use.

    Raises:
        DriverError: there is none.
    """
    try:
        loaded = ctypes.CDLL(library)
    except OSError as error:
        raise DriverError(str(error)) from None
    return CudaDriver(loaded)
