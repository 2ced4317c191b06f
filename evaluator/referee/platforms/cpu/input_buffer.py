"""Inputs for a runner in memory that the referee fills from outside while the runner is stopped."""

import fcntl
import mmap
import os

import torch

from ...isolation.procfs import same_bytes
from ...protocol.tensors import TensorRow, Tree, laid_out

_ALIGN = 4096


class SharedInputBuffer:
    """A sealed anonymous file, mapped by the referee and by one runner, cut into slots of one set of inputs each.

    Sealed, so that a hostile runner cannot shrink it under the referee's feet. Slots are used in turn, so that
    addresses repeat with other contents and inputs come from a footprint larger than the caches.
    """

    def __init__(self, slot_bytes: int, slots: int) -> None:
        self.slot_bytes = max(_ALIGN, -(-slot_bytes // _ALIGN) * _ALIGN)
        self.slots = slots
        self.size = self.slot_bytes * slots
        self.fd = os.memfd_create("inputs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._map = mmap.mmap(self.fd, self.size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)
        self._next = 0

    def put(self, tree: Tree, contents: list[torch.Tensor]) -> Tree:
        """Copy each tensor's bytes into the next slot; the tree with places inside the input buffer."""
        placed = self.place(tree)
        self.fill(placed, contents)
        return placed

    def place(self, tree: Tree) -> Tree:
        """Take the next slot for a tree: the tree with places inside the input buffer, where nothing of it lies yet."""
        offset = (self._next % self.slots) * self.slot_bytes
        self._next += 1
        return laid_out(tree, offset)

    def fill(self, placed: Tree, contents: list[torch.Tensor]) -> None:
        """Copy each tensor's bytes to its place."""
        for row, content in zip(placed.tensors, contents, strict=True):
            self._bytes[row.place : row.place + content.numel()].copy_(content)

    @property
    def told(self) -> list[tuple[int, int]]:
        """See `base.InputBuffer`: the file."""
        return [(self.fd, self.size)]

    def empty(self) -> bool:
        """See `base.InputBuffer` (madvise(2): MADV_REMOVE)."""
        self._map.madvise(mmap.MADV_REMOVE)
        return True

    def close(self) -> None:
        """Give file and mapping back. What the runner has kept of it, such as arguments of a constructor, stays."""
        os.close(self.fd)
        del self._bytes  # it refers to the mapping, of which nothing may be asked any more
        self._map.close()

    def unchanged(self, row: TensorRow, content: torch.Tensor) -> bool:
        """Whether the bytes at a row's place are still those of `content`."""
        return same_bytes(self._bytes[row.place : row.place + content.numel()], content)

    def copy(self, row: TensorRow) -> torch.Tensor:
        """The bytes that lie at a row's place now."""
        return self._bytes[row.place : row.place + row.span_bytes].clone()
