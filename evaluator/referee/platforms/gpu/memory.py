"""Memory on the GPU that the referee owns: slots for inputs, a place for outputs, and a snapshot that nobody else has.

A runner opens inputs and outputs by a handle of interprocess memory, and what it opens it may write to. So outputs are
overwritten before each call, and copied to memory of the referee's own (the snapshot) at the end of the clock. Only
that is judged. Behind the copy outputs are overwritten again: handles of one exporter are alike, so whoever guesses
another one's would find right answers there. Inputs, too, lie in memory of the referee's own until they are uncovered.
Of inputs the referee keeps the bytes in its own process, compares them with what lies in the slot after each call, and
writes a slot anew for the next.

Memory that a process has open is given back after that process's end: what happens before is not defined.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ...errors import RunnerFailed
from ...isolation.procfs import same_bytes
from ...protocol.device_memory import Shared, described, on_device, output_offsets
from ...protocol.tensors import TensorRow, Tree, laid_out
from .driver import Allocation, Driver

POISON = 0xFF  # NaN in every floating-point type, and no plain index
_PIECE_BYTES = 16 << 20  # compared at a time


@dataclass
class Retired:
    """Memory that is no longer used, and whose processes may have it open."""

    driver: Driver
    _waiting: list[tuple[int, Allocation]] = field(default_factory=list)

    def add(self, pid: int | None, *allocations: Allocation) -> None:
        """Keep memory until the process has ended; None: nobody has opened it."""
        for allocation in allocations:
            if pid is None:
                self.driver.free(allocation)
            else:
                self._waiting.append((pid, allocation))
        self.sweep()

    def sweep(self) -> None:
        """Give back what nobody has open any more."""
        still = []
        for pid, allocation in self._waiting:
            if _lives(pid):
                still.append((pid, allocation))
            else:
                self.driver.free(allocation)
        self._waiting = still

    @property
    def nbytes(self) -> int:
        """What waits."""
        return sum(allocation.nbytes for _, allocation in self._waiting)


@dataclass
class Outputs:
    """Where a runner puts its outputs, and the referee's snapshot of them."""

    driver: Driver
    retired: Retired
    shared: Allocation | None = None
    snapshot: Allocation | None = None
    taken: list[tuple[TensorRow, int]] = field(default_factory=list)  # of the last call, with offsets
    used: int = 0  # bytes that the last call has written at most

    def room(self, nbytes: int, pid: int | None) -> bool:
        """Have room for so many bytes.

        Returns:
            Whether the memory is another than before, so that the runner must open it.
        """
        if nbytes == 0 or (self.shared is not None and nbytes <= self.shared.nbytes):
            return False
        self.give_back(pid)
        self.retired.sweep()
        self.shared = fresh(self.driver, nbytes)
        self.snapshot = self.driver.allocate(nbytes)
        self.used = self.shared.nbytes
        return True

    def describe(self) -> Shared | None:
        """What a runner needs to open it; None: there is no room yet."""
        if self.shared is None:
            return None
        handle, offset = self.driver.export(self.shared)
        return Shared(handle, offset, self.shared.nbytes)

    def poison(self) -> None:
        """Overwrite what earlier calls have left, so that only what is written from now on can be right."""
        self.overwrite()
        self.taken = []

    def overwrite(self) -> None:
        """Overwrite what lies in the memory that a runner has open. The snapshot stays."""
        if self.shared is not None:
            self.driver.fill(self.shared.address, POISON, min(self.used, self.shared.nbytes))

    def prepare(self, nbytes: int, pid: int | None) -> None:
        """Have room for a copy of so many bytes, with poison in it; the snapshot stays where there was room already."""
        self.room(nbytes, pid)
        assert self.shared is not None
        self.driver.fill(self.shared.address, POISON, nbytes)
        self.used = max(self.used, nbytes)

    def take(self, rows: Sequence[TensorRow]) -> None:
        """Ask for the snapshot of these tensors, in the order of the referee's stream.

        Raises:
            RunnerFailed: there is no room for them, so the runner cannot have put them anywhere.
        """
        offsets, needed = output_offsets(rows)
        if not needed:
            return
        if self.shared is None or self.snapshot is None or needed > self.shared.nbytes:
            raise RunnerFailed("protocol", "outputs larger than the memory that they were put in")
        self.driver.copy(self.snapshot.address, self.shared.address, needed)
        self.taken = list(zip(rows, offsets, strict=True))
        self.used = needed

    def find(self, row: TensorRow) -> int | None:
        """The address in the snapshot of what lay at a tensor's place when the last call ended; None: not taken."""
        if self.snapshot is None:
            return None
        for taken, offset in self.taken:
            inside = row.place - taken.place
            if taken.device == row.device and 0 <= inside <= taken.span_bytes - row.span_bytes:
                return self.snapshot.address + offset + inside
        return None

    def give_back(self, pid: int | None) -> None:
        """Give the memory back, once nobody has it open."""
        if self.shared is not None and self.snapshot is not None:
            self.retired.add(pid, self.shared)
            self.driver.free(self.snapshot)  # which was never exported
        self.shared = self.snapshot = None
        self.taken = []


class DeviceInputBuffer:
    """See `base.InputBuffer`: slots of device memory, taken in turn, so that calls rotate over more than caches hold.

    The file that a runner is sent describes the memory, and that for outputs.
    """

    def __init__(self, driver: Driver, retired: Retired, slot_bytes: int, slots: int, output_bytes: int) -> None:
        """Allocate.

        Args:
            driver: the GPU.
            retired: where memory goes that may be open.
            slot_bytes: bytes of one set of inputs.
            slots: how many sets.
            output_bytes: room for outputs that earlier calls of the evaluation have needed.

        Raises:
            RunnerFailed: the device has not so much memory.
        """
        self._driver, self._retired = driver, retired
        self.slot_bytes = max(4096, -(-slot_bytes // 4096) * 4096)
        self.slots = slots
        self._next = 0
        self._pid: int | None = None
        self.opened_at = 0  # where the runner says that it has opened the slots
        retired.sweep()
        self._memory = fresh(driver, self.slot_bytes * slots)
        self._staged = driver.allocate(self.slot_bytes)  # never exported
        self.outputs = Outputs(driver, retired)
        self.outputs.room(output_bytes, None)
        handle, offset = driver.export(self._memory)
        body = described(Shared(handle, offset, self._memory.nbytes), self.outputs.describe())
        self.size = len(body)
        self.fd = os.memfd_create("inputs", os.MFD_CLOEXEC)
        os.write(self.fd, body)

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return self.slot_bytes * self.slots

    @property
    def pid(self) -> int | None:
        """The runner that has it open; None: none has."""
        return self._pid

    def attached_to(self, pid: int) -> None:
        """A runner is going to open it."""
        self._pid = pid

    def put(self, tree: Tree, contents: list[torch.Tensor]) -> Tree:
        """See `base.InputBuffer`."""
        placed = self.place(tree)
        self.fill(placed, contents)
        return placed

    def place(self, tree: Tree) -> Tree:
        """See `base.InputBuffer`."""
        offset = (self._next % self.slots) * self.slot_bytes
        self._next += 1
        return laid_out(tree, offset)

    def fill(self, placed: Tree, contents: list[torch.Tensor]) -> None:
        """See `base.InputBuffer`. Something else than a call comes, which may put other tensors where outputs lay."""
        self.outputs.taken = []
        self.stage(placed, contents)
        self.uncover(placed, contents)
        self._driver.wait()

    def stage(self, placed: Tree, contents: list[torch.Tensor]) -> None:
        """Bring the contents to the device, where no runner reaches them; done when this returns."""
        for source, content in zip(self._staging(placed), contents, strict=True):
            self._driver.write(source, content)

    def uncover(self, placed: Tree, contents: list[torch.Tensor]) -> None:
        """Ask for a copy of what was staged to its places in the slot, in the order of the referee's stream."""
        for row, source, content in zip(placed.tensors, self._staging(placed), contents, strict=True):
            self._driver.copy(self._address(row, content.numel()), source, content.numel())

    def _staging(self, placed: Tree) -> list[int]:
        """Where each tensor is staged: as far from the first one as in the slot."""
        start = min((row.place for row in placed.tensors), default=0)
        return [self._staged.address + row.place - start for row in placed.tensors]

    def unchanged(self, row: TensorRow, content: torch.Tensor) -> bool:
        """See `base.InputBuffer`."""
        for start in range(0, content.numel(), _PIECE_BYTES):
            expected = content[start : start + _PIECE_BYTES]
            piece = torch.empty(expected.numel(), dtype=torch.uint8)
            self._driver.read(self._address(row, content.numel()) + start, piece)
            if not same_bytes(piece, expected):
                return False
        return True

    def copy(self, row: TensorRow) -> torch.Tensor:
        """See `base.InputBuffer`."""
        found = torch.empty(row.span_bytes, dtype=torch.uint8)
        self._driver.read(self._address(row, row.span_bytes), found)
        return found

    def holds(self, row: TensorRow) -> bool:
        """Whether a tensor of the runner lies in the slots, as far as the runner's own addresses can be believed."""
        start, end = self.opened_at, self.opened_at + self.nbytes
        return on_device(row) and bool(start) and row.place < end and row.place + row.span_bytes > start

    def empty(self) -> bool:
        """See `base.InputBuffer`. It lies in the device's memory, so there is nothing of the host's."""
        return False

    def close(self) -> None:
        """See `base.InputBuffer`."""
        os.close(self.fd)
        self.outputs.give_back(self._pid)
        self._retired.add(self._pid, self._memory)
        self._driver.free(self._staged)

    def _address(self, row: TensorRow, nbytes: int) -> int:
        assert row.place >= 0 and row.place + nbytes <= self._memory.nbytes
        return self._memory.address + row.place


def fresh(driver: Driver, nbytes: int) -> Allocation:
    """New memory for a runner to open, in which nothing is left of what another one has had there.

    Raises:
        RunnerFailed: the device has not so much.
    """
    allocation = driver.allocate(nbytes)
    driver.fill(allocation.address, POISON, allocation.nbytes)
    driver.wait()
    return allocation


def _lives(pid: int) -> bool:
    """Whether a process has not ended. One that waits to be reaped has closed all that it had open."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in ("Z", "X")
