"""Memory on the GPU that the referee owns: slots for inputs, a place for outputs, and a snapshot that nobody else has.

A runner opens inputs and outputs by file descriptors, and what it opens it may write to. So outputs are overwritten
before each call, and copied to memory of the referee's own (the snapshot) at the end of the clock. Only that is
judged. Inputs, too, lie in memory of the referee's own until they are uncovered. Of inputs the referee keeps the bytes
in its own process, compares them with what lies in the slot after each call, and writes a slot anew for the next.

The referee may give memory back that a process has open: the device keeps it for that process until its end.
"""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ...errors import RunnerFailed
from ...isolation.procfs import same_bytes
from ...protocol.device_memory import on_device, output_offsets
from ...protocol.tensors import TensorRow, Tree, laid_out
from .driver import Allocation, Driver

POISON = 0xFF  # NaN in every floating-point type, and no plain index
_PIECE_BYTES = 16 << 20  # compared at a time


@dataclass
class Outputs:
    """Where a runner puts its outputs, and the referee's snapshot of them."""

    driver: Driver
    shared: Allocation | None = None
    fd: int = -1  # by which a runner opens the shared memory
    snapshot: Allocation | None = None
    taken: dict[int, tuple[TensorRow, int]] = field(default_factory=dict)  # of the last call, by place, with offsets
    used: int = 0  # bytes that the last call has written at most
    expected: int = 0  # bytes that the outputs of the last call have needed
    ahead: int = 0  # bytes that have been taken of the call under way

    def room(self, nbytes: int) -> bool:
        """Have room for so many bytes.

        Returns:
            Whether the memory is another than before, so that the runner must open it.

        Raises:
            RunnerFailed: the device has not so much; there is no room at all then.
        """
        if nbytes == 0 or (self.shared is not None and nbytes <= self.shared.nbytes):
            return False
        self.give_back()
        try:
            self.shared = fresh(self.driver, nbytes)
            self.fd = self.driver.export(self.shared)
            self.snapshot = self.driver.allocate(nbytes)
        except BaseException:
            self.give_back()
            raise
        self.used = self.shared.nbytes
        return True

    def told(self) -> list[tuple[int, int]]:
        """The file descriptor by which a runner opens it, and its size; nothing while there is no room."""
        return [] if self.shared is None else [(self.fd, self.shared.nbytes)]

    def poison(self) -> None:
        """Overwrite what earlier calls have left, so that only what is written from now on can be right."""
        if self.shared is not None:
            self.driver.fill(self.shared.address, POISON, min(self.used, self.shared.nbytes))
        self.taken = {}

    def prepare(self, nbytes: int) -> bool:
        """Have room for a copy of so many bytes, with poison in it; the snapshot stays where there was room already.

        Returns:
            Whether the memory is another than before.
        """
        is_other = self.room(nbytes)
        assert self.shared is not None
        self.driver.fill(self.shared.address, POISON, nbytes)
        self.used = max(self.used, nbytes)
        return is_other

    def take_ahead(self) -> None:
        """Ask for the snapshot of as much as the last call has needed, before it is known what this one needs."""
        self.ahead = 0
        if self.shared is not None and self.snapshot is not None and self.expected <= self.shared.nbytes:
            self.driver.copy(self.snapshot.address, self.shared.address, self.expected)
            self.ahead = self.expected

    def take(self, rows: Sequence[TensorRow]) -> bool:
        """Have the snapshot of these tensors, in the order of the referee's stream.

        Returns:
            Whether it had to be asked for: more was needed than has been taken ahead.

        Raises:
            RunnerFailed: there is no room for them, so the runner cannot have put them anywhere.
        """
        offsets, needed = output_offsets(rows)
        ahead, self.ahead, self.expected = self.ahead, 0, needed
        if not needed:
            return False
        if self.shared is None or self.snapshot is None or needed > self.shared.nbytes:
            raise RunnerFailed("protocol", "outputs larger than the memory that they were put in")
        if needed > ahead:
            self.driver.copy(self.snapshot.address, self.shared.address, needed)
        for row, offset in zip(rows, offsets, strict=True):
            if row.place not in self.taken or row.span_bytes > self.taken[row.place][0].span_bytes:
                self.taken[row.place] = row, offset
        self.used = needed
        return needed > ahead

    def find(self, row: TensorRow) -> int | None:
        """The address in the snapshot of what lay at a tensor's place when the last call ended; None: not taken."""
        if self.snapshot is None:
            return None
        same = self.taken.get(row.place)
        whole = same is not None and same[0].span_bytes >= row.span_bytes
        for taken, offset in [same] if same is not None and whole else self.taken.values():
            inside = row.place - taken.place
            if taken.device == row.device and 0 <= inside <= taken.span_bytes - row.span_bytes:
                return self.snapshot.address + offset + inside
        return None

    def give_back(self) -> None:
        """Give the memory back."""
        if self.fd >= 0:
            os.close(self.fd)
        for allocation in (self.shared, self.snapshot):
            if allocation is not None:
                self.driver.free(allocation)
        self.shared, self.snapshot, self.fd = None, None, -1
        self.taken, self.ahead = {}, 0


class DeviceInputBuffer:
    """See `base.InputBuffer`: slots on the device, taken in turn, so that calls rotate over more than caches hold."""

    def __init__(self, driver: Driver, slot_bytes: int, slots: int, output_bytes: int) -> None:
        """Allocate.

        Args:
            driver: the GPU.
            slot_bytes: bytes of one set of inputs.
            slots: how many sets.
            output_bytes: room for outputs that earlier calls of the evaluation have needed.

        Raises:
            RunnerFailed: the device has not so much memory.
        """
        self._driver = driver
        self.slot_bytes = max(4096, -(-slot_bytes // 4096) * 4096)
        self.slots = slots
        self._next = 0
        self.opened_at = 0  # where the runner says that it has opened the slots
        with contextlib.ExitStack() as held:
            self._memory = fresh(driver, self.slot_bytes * slots)
            held.callback(driver.free, self._memory)
            self._fd = driver.export(self._memory)
            held.callback(os.close, self._fd)
            self._staged = driver.allocate(self.slot_bytes)  # never exported
            held.callback(driver.free, self._staged)
            self.outputs = Outputs(driver)
            held.callback(self.outputs.give_back)
            self.outputs.room(output_bytes)
            self._held = held.pop_all()

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return self.slot_bytes * self.slots

    @property
    def told(self) -> list[tuple[int, int]]:
        """See `base.InputBuffer`: the slots, and the memory for outputs where there is room already."""
        return [(self._fd, self._memory.nbytes), *self.outputs.told()]

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
        self.outputs.taken = {}
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
        self._held.close()

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
