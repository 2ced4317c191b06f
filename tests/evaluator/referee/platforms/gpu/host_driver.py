"""A driver whose device is the host's memory: the referee's logic is run on it, where there is no GPU.

Work that other processes have on the device is a queue here, which is worked off while the referee waits.
"""

import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from evaluator.referee.errors import RunnerFailed
from evaluator.referee.platforms.gpu.driver import GRANULE, Allocation

SMALL = 1 << 16  # of the device's cache


@dataclass
class HostDriver:
    """See `driver.Driver`."""

    l2_bytes: int = SMALL
    room: int = 1 << 30
    memory: dict[int, ctypes.Array[ctypes.c_char]] = field(default_factory=dict)
    exported: set[int] = field(default_factory=set)
    freed: list[Allocation] = field(default_factory=list)
    log: list[tuple[str, int, int]] = field(default_factory=list)
    marks: dict[int, float] = field(default_factory=dict)
    marked: int = 0
    running: list[Callable[[], bool]] = field(default_factory=list)  # of others; True: it goes on
    drift: float = 1.0  # of the device's clock
    persistence_forgotten: int = 0

    def allocate(self, nbytes: int) -> Allocation:
        size = max(1, -(-nbytes // GRANULE)) * GRANULE
        if sum(map(len, self.memory.values())) + size > self.room:
            raise RunnerFailed("out_of_memory", f"{size:,} bytes of the device's memory: full")
        held = ctypes.create_string_buffer(size)
        address = ctypes.addressof(held)
        self.memory[address] = held
        return Allocation(address, size)

    def free(self, allocation: Allocation) -> None:
        del self.memory[allocation.address]
        self.freed.append(allocation)

    def export(self, allocation: Allocation) -> int:
        self.exported.add(allocation.address)
        fd = os.memfd_create("allocation", os.MFD_CLOEXEC)  # it holds the address
        os.write(fd, allocation.address.to_bytes(8, "big"))
        return fd

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self.log.append(("fill", address, nbytes))
        ctypes.memset(address, byte, nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self.log.append(("copy", target, nbytes))
        ctypes.memmove(target, source, nbytes)

    def write(self, address: int, content: torch.Tensor) -> None:
        ctypes.memmove(address, content.data_ptr(), content.numel())

    def read(self, address: int, into: torch.Tensor) -> None:
        ctypes.memmove(into.data_ptr(), address, into.numel())

    def mark(self) -> int:
        self.marked += 1
        self.marks[self.marked] = time.perf_counter()
        return self.marked

    def between_s(self, first: int, second: int) -> float:
        return (self.marks.pop(second) - self.marks.pop(first)) * self.drift

    def wait(self) -> None:
        if self.running:
            time.sleep(0.002)  # the turn of another context
            self.running = [each for each in self.running if each()]

    def forget_persistence(self) -> None:
        self.persistence_forgotten += 1

    def version(self) -> str:
        return "13.0"


@dataclass
class HostMemory:
    """See `on_gpu.memory.Memory`: the same memory, as a runner reaches it. To torch it is the host's."""

    driver: HostDriver
    device: str = "cpu"
    waits: int = 0
    opened: list[int] = field(default_factory=list)

    def open(self, fd: int, nbytes: int) -> int:
        address = int.from_bytes(os.pread(fd, 8, 0), "big")
        assert len(self.driver.memory[address]) == nbytes
        self.opened.append(address)
        return address

    def close(self, address: int) -> None:
        if address:
            self.opened.remove(address)

    def at(self, address: int, nbytes: int) -> torch.Tensor:
        if not nbytes:
            return torch.empty(0, dtype=torch.uint8)
        held = (ctypes.c_ubyte * nbytes).from_address(address)
        return torch.frombuffer(held, dtype=torch.uint8)

    def wait(self) -> None:
        self.waits += 1
