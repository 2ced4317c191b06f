"""The GPU as the referee's own process uses it: CUDA's driver interface, by ctypes.

The referee allocates by the driver's management of virtual memory and not by torch, whose allocations no other process
can be given. A file descriptor stands for each allocation. Whoever is sent it may open the memory, of whatever user:
what CUDA calls interprocess memory (`cuIpcOpenMemHandle`) may be opened by processes of the same user only, as NVIDIA's
kernel module has it (`osValidateClientTokens`), and runners have users of their own.

The referee loads no kernel: filling, copying and events are all that it needs.

Names, versions and structures are those of NVIDIA's manual of the driver interface.
"""

import contextlib
import ctypes
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from ...errors import RunnerFailed
from ...protocol.device_memory import FILE_DESCRIPTOR, NO_FLAGS, Location, mapped

LIBRARY = "libcuda.so.1"
GRANULE = 2 << 20  # allocations are rounded up to this, so that none shares what the driver hands out at once
_SUCCESS, _OUT_OF_MEMORY, _NOT_SUPPORTED = 0, 2, 801
_L2_BYTES_ATTRIBUTE = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")  # without which no context is made
_NON_BLOCKING = 1  # of a stream: it does not wait for the default one
_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED, the only kind that there is
_MINIMUM = 0  # CU_MEM_ALLOC_GRANULARITY_MINIMUM


class DriverError(Exception):
    """The driver refused a call: which one, and why; `status` is None where it has no such call."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Allocation:
    """Memory of the device: its address in the referee's process, and its size."""

    address: int
    nbytes: int


class _Properties(ctypes.Structure):
    """CUmemAllocationProp: memory of the device that can be exported as a file descriptor."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("exported_as", ctypes.c_int),
        ("location", Location),
        ("of_windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )

    def __init__(self) -> None:
        super().__init__(_PINNED, FILE_DESCRIPTOR, Location())


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
        """Give memory back, once all that was asked of the referee's stream is done.

        The device has it again when nobody has it open any more and all of its file descriptors are closed.
        """
        ...

    def export(self, allocation: Allocation) -> int:
        """A file descriptor by which another process opens the memory. The caller closes it."""
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
        self._handles: dict[int, int] = {}  # of allocations, by their addresses
        self._named = 0
        self._context, self._stream, self._device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
        self._check("cuInit", ctypes.c_uint(0))
        self._check("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(0))
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self._call("cuStreamCreate", ctypes.byref(self._stream), ctypes.c_uint(_NON_BLOCKING))
        granule = ctypes.c_size_t()
        properties = ctypes.byref(_Properties())
        self._call("cuMemGetAllocationGranularity", ctypes.byref(granule), properties, ctypes.c_int(_MINIMUM))
        self._granule = max(GRANULE, int(granule.value))  # both are powers of two

    @property
    def l2_bytes(self) -> int:
        """See `Driver`."""
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(_L2_BYTES_ATTRIBUTE), self._device)
        return int(value.value)

    def allocate(self, nbytes: int) -> Allocation:
        """See `Driver`."""
        nbytes = max(1, -(-nbytes // self._granule)) * self._granule
        handle, properties = ctypes.c_ulonglong(), ctypes.byref(_Properties())
        try:
            self._call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(nbytes), properties, NO_FLAGS)
        except DriverError as error:
            if error.status != _OUT_OF_MEMORY:
                raise
            raise RunnerFailed("out_of_memory", f"{nbytes:,} bytes of the device's memory: {error}") from None
        address = mapped(self._call, handle, nbytes)
        with self._lock:
            self._handles[address] = int(handle.value)
        return Allocation(address, nbytes)

    def free(self, allocation: Allocation) -> None:
        """See `Driver`."""
        self.wait()
        with self._lock:
            handle = self._handles.pop(allocation.address)
        address, size = ctypes.c_ulonglong(allocation.address), ctypes.c_size_t(allocation.nbytes)
        self._call("cuMemUnmap", address, size)
        self._call("cuMemAddressFree", address, size)
        self._call("cuMemRelease", ctypes.c_ulonglong(handle))

    def export(self, allocation: Allocation) -> int:
        """See `Driver`."""
        handle, fd = ctypes.c_ulonglong(self._handles[allocation.address]), ctypes.c_int()
        kind = ctypes.c_int(FILE_DESCRIPTOR)
        self._call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, kind, NO_FLAGS)
        return int(fd.value)

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
        try:
            self._call("cuCtxResetPersistingL2Cache")
        except DriverError as error:
            if error.status != _NOT_SUPPORTED:  # by a device on which nothing persists
                raise

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
            raise DriverError(f"{name}: {self._words(status)}", status)

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
        return CudaDriver(ctypes.CDLL(library))
    except OSError as error:
        raise DriverError(str(error)) from None
    except DriverError as error:
        absent = ", ".join(node for node in _NODES if not Path(node).exists())
        if not absent:
            raise
        raise DriverError(f"{error}; not there: {absent} (nvidia-modprobe -c 0 -u makes them)", error.status) from None
