"""The memory of an input buffer: it is there from the start, and goes when the buffer is emptied or closed."""

import mmap
import os
from pathlib import Path

import pytest
import torch

from evaluator.referee.platforms.cpu.input_buffer import SharedInputBuffer
from evaluator.referee.protocol.tensors import TensorRow, Tree

MB = 1 << 20
TREE = Tree({"list": [{"tensor": 0}]}, (TensorRow(0, "uint8", (8 * MB,), (1,)),))
VALUES = torch.full((8 * MB,), 7, dtype=torch.uint8)


def mapped_buffers() -> int:
    """How many input buffers this process has mapped."""
    return Path("/proc/self/maps").read_text().count("/memfd:inputs")


def test_a_closed_buffer_holds_nothing_in_the_referee() -> None:
    before = mapped_buffers()
    buffer = SharedInputBuffer(8 * MB, 2)
    assert mapped_buffers() == before + 1
    placed = buffer.put(TREE, [VALUES])
    buffer.close()
    assert mapped_buffers() == before, "though the object is still there"
    with pytest.raises(AttributeError):
        buffer.copy(placed.tensors[0])


def test_what_a_runner_has_kept_of_a_closed_buffer_stays() -> None:
    buffer = SharedInputBuffer(8 * MB, 1)
    kept = mmap.mmap(buffer.fd, buffer.size)
    buffer.put(TREE, [VALUES])
    buffer.close()
    assert kept[:3] == b"\x07\x07\x07"


def test_an_emptied_buffer_takes_no_memory_until_it_is_filled_again() -> None:
    buffer = SharedInputBuffer(8 * MB, 1)
    seen = mmap.mmap(buffer.fd, buffer.size)  # as the runner does
    buffer.put(TREE, [VALUES])
    buffer.empty()
    assert os.fstat(buffer.fd).st_blocks == 0
    assert seen[:3] == b"\0\0\0"
    placed = buffer.put(TREE, [VALUES])
    assert seen[placed.tensors[0].place] == 7
    assert buffer.unchanged(placed.tensors[0], VALUES)
    buffer.close()


def test_a_runner_cannot_shrink_it() -> None:
    buffer = SharedInputBuffer(8 * MB, 1)
    with pytest.raises(PermissionError):
        os.ftruncate(buffer.fd, 0)
    buffer.close()
