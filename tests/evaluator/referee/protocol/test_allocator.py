"""Giving memory back whose contents are needed no longer."""

import mmap

import pytest
import torch

from evaluator.referee.protocol import allocator

PAGE = mmap.PAGESIZE


@pytest.mark.parametrize(("start", "nbytes"), [(0, 8 * PAGE), (1, 8 * PAGE - 2), (100, 3 * PAGE), (PAGE, PAGE)])
def test_whole_pages_read_as_zero_and_what_shares_a_page_with_others_stays(start: int, nbytes: int) -> None:
    memory = mmap.mmap(-1, 9 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:] = b"\x07" * len(memory)
    place = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
    allocator.discard(place + start, nbytes)
    first, end = -(-start // PAGE) * PAGE, (start + nbytes) // PAGE * PAGE
    assert memory[:first] == b"\x07" * first
    assert memory[first:end] == bytes(end - first)
    assert memory[end:] == b"\x07" * (len(memory) - end)


@pytest.mark.parametrize("nbytes", [0, 1, PAGE - 1])
def test_less_than_a_page_stays(nbytes: int) -> None:
    values = torch.full((4 * PAGE,), 7, dtype=torch.uint8)
    allocator.discard(values.data_ptr() + 1, nbytes)
    assert bool((values == 7).all())


def test_what_is_no_memory_of_the_process_is_refused() -> None:
    with pytest.raises(OSError, match="cannot be given back"):
        allocator.discard(PAGE, PAGE)
