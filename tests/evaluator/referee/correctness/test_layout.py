"""Where outputs may lie: their strides, and whether they share memory with the inputs."""

import ctypes
import mmap
import os
import tempfile

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.correctness.layout import badly_laid_out, kept_apart, overlap
from evaluator.referee.platforms.base import Places
from evaluator.referee.platforms.cpu.input_buffer import SharedInputBuffer
from evaluator.referee.platforms.cpu.memory import places
from evaluator.referee.protocol.tensors import TensorRow, describe


def row(value: torch.Tensor) -> TensorRow:
    return describe(value)


X = torch.arange(24.0).reshape(2, 3, 4)
COPIED = X.transpose(1, 2).contiguous()


@pytest.mark.parametrize(
    ("want", "got"),
    [
        (COPIED, X.transpose(1, 2)),
        (X[:, :1].repeat(1, 3, 1), X[:, :1].expand(2, 3, 4)),
        (COPIED, COPIED.to(memory_format=torch.contiguous_format).transpose(0, 1).contiguous().transpose(0, 1)),
        (X.transpose(1, 2), X.repeat(1, 1, 2)[:, :, ::2].transpose(1, 2)),
        (X.transpose(0, 2), torch.zeros(1).expand(4, 3, 2)),
        (torch.zeros(5), torch.zeros(10)[::2]),
    ],
)
def test_gaps_overlaps_and_views_for_copies_are_found(want: torch.Tensor, got: torch.Tensor) -> None:
    assert want.shape == got.shape
    assert badly_laid_out(row(want), row(got))


@pytest.mark.parametrize(
    ("want", "got"),
    [
        (X.transpose(1, 2), COPIED),
        (X.transpose(1, 2), X.permute(2, 1, 0).contiguous().permute(2, 0, 1)),
        (X[:, ::2], X[:, ::2]),
        (torch.zeros(1).expand(4, 3), torch.zeros(1).expand(4, 3)),
        (torch.zeros(4, 3), torch.zeros(4, 3)),
        (torch.zeros(4, 1, 3), torch.zeros(4, 3).as_strided((4, 1, 3), (3, 77, 1))),
        (torch.zeros(0, 3), torch.zeros(3, 0).t()),
        (torch.zeros(()), torch.zeros(())),
    ],
)
def test_the_references_strides_and_dense_ones_pass(want: torch.Tensor, got: torch.Tensor) -> None:
    assert want.shape == got.shape
    assert badly_laid_out(row(want), row(got)) == ""


@given(st.lists(st.integers(0, 4), max_size=4), st.data())
def test_any_order_of_dimensions_is_dense(shape: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    got = torch.zeros([shape[dim] for dim in order]).permute([order.index(dim) for dim in range(len(shape))])
    assert list(got.shape) == shape
    gaps = torch.zeros([*shape, 2])[..., 0]
    assert badly_laid_out(row(gaps), row(got)) == ""
    assert bool(badly_laid_out(row(got.contiguous()), row(gaps))) == (got.numel() > 1)


def test_an_output_in_the_input_buffer_is_found_through_every_mapping_of_it() -> None:
    input_buffer = SharedInputBuffer(1 << 16, 2)
    mapped = mmap.mmap(input_buffer.fd, input_buffer.size)
    inside = torch.frombuffer(mapped, dtype=torch.float32, count=100, offset=4096)
    libc = ctypes.CDLL(None)
    libc.mremap.restype = ctypes.c_void_p
    libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    again = libc.mremap(inside.data_ptr(), 0, 4096, 1)
    twice = torch.frombuffer((ctypes.c_float * 100).from_address(again), dtype=torch.float32)
    own, shared = torch.ones(100), torch.ones(100).share_memory_()
    untouched = torch.frombuffer(mmap.mmap(-1, 1 << 20), dtype=torch.float32)
    values = [inside, twice, own, shared, untouched, torch.zeros(0)]
    found = places(os.getpid(), [row(value) for value in values])
    assert found.in_input_buffer == [True, True, False, False, False, False]
    assert found.folded  # `inside` and `twice`
    last = row(twice).place + 4096 - 4
    reaching = [TensorRow(last, "float32", (2,), (1,)), TensorRow(last + 4 - 2 * 4096, "float32", (1025,), (1,))]
    assert places(os.getpid(), reaching).in_input_buffer == [True, True]
    assert places(os.getpid(), [row(inside), row(inside), row(inside[:7])]) == Places([True] * 3)
    input_buffer.close()


def whole(flags: int, fd: int = -1) -> torch.Tensor:
    """Four pages of a mapping."""
    return torch.frombuffer(mmap.mmap(fd, 4 * mmap.PAGESIZE, flags=flags), dtype=torch.float32)


def test_memory_that_nobody_has_written_is_found_read_or_not() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"1" * 4 * mmap.PAGESIZE)
        file.flush()
        found = {
            "anonymous": whole(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS),
            "shared": whole(mmap.MAP_SHARED | mmap.MAP_ANONYMOUS),
            "of a file": whole(mmap.MAP_PRIVATE, file.fileno()),
        }
    for name, value in found.items():
        value[: 3 * mmap.PAGESIZE // 4] = 1
        rows = [row(value), row(value[:10])]
        assert places(os.getpid(), rows).unwritten == {0}, name
        if name != "shared":  # which has a page of its own once it is read
            assert value.sum() != 0
            assert places(os.getpid(), rows).unwritten == {0}, f"{name}, when it has been read"
        value[-1] = 1
        assert places(os.getpid(), rows).unwritten == frozenset(), f"{name}, when it has been written"


def test_what_a_child_process_shares_and_what_lies_in_gaps_is_no_unwritten_memory() -> None:
    value = whole(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    gaps = torch.as_strided(value, (2,), (3 * mmap.PAGESIZE // 4,))
    gaps += 1
    assert places(os.getpid(), [row(gaps)]).unwritten == frozenset()
    value += 1
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(ready, 1)
        os._exit(0)
    assert places(os.getpid(), [row(value)]).unwritten == frozenset()
    os.close(go)
    os.close(ready)
    os.waitpid(child, 0)


def test_a_page_at_two_places_of_an_output_is_found_and_two_pages_of_a_file_are_fine() -> None:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    fd = os.memfd_create("rows")
    os.ftruncate(fd, 2 * mmap.PAGESIZE)
    start = libc.mmap(None, 3 * mmap.PAGESIZE, 3, 0x22, -1, 0)
    for place, offset in ((0, 0), (1, 1), (2, 0)):
        at = start + place * mmap.PAGESIZE
        assert libc.mmap(at, mmap.PAGESIZE, 3, 0x8011, fd, offset * mmap.PAGESIZE) == at
    os.close(fd)
    count = mmap.PAGESIZE // 4
    assert places(os.getpid(), [TensorRow(start, "float32", (2 * count,), (1,))]) == Places([False])
    assert places(os.getpid(), [TensorRow(start, "float32", (3 * count,), (1,))]).folded
    halves = [TensorRow(start + at * mmap.PAGESIZE, "float32", (count,), (1,)) for at in (0, 2)]
    assert places(os.getpid(), halves).folded


def named(*values: torch.Tensor) -> dict[str, TensorRow]:
    return {f"[{index}]": row(value) for index, value in enumerate(values)}


def test_outputs_share_memory_only_where_the_references_do() -> None:
    x, y, z = torch.ones(8, 8), torch.ones(8, 8), torch.zeros(0)
    apart = named(x, y, z)
    assert kept_apart(apart, apart) is None
    assert kept_apart(apart, named(x, x, z)) == ("[0]", "[1]")
    assert kept_apart(named(x, x, z), named(x, x, z)) is None
    assert kept_apart(named(x, x, z), apart) is None
    assert kept_apart(named(x[:4], x[4:]), named(y[:4], y[4:])) is None
    assert kept_apart(named(x, y.view(-1)[:7]), named(x, x.view(-1)[3:10])) == ("[0]", "[1]")
    # Three of which the last shares with the first.
    assert kept_apart(named(x, y, torch.ones(8)), named(x, y, x[1])) == ("[0]", "[2]")
    # Interleaved views of one tensor, where the reference's are laid out so, too.
    assert kept_apart(named(x[:, ::2], y[:, ::2]), named(x[:, ::2], x[:, 1::2])) is None


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9), st.booleans()), max_size=8))
def test_spans_of_two_sides_overlap_where_some_byte_is_in_both(spans: list[tuple[int, int, bool]]) -> None:
    sides: tuple[list[TensorRow], list[TensorRow]] = ([], [])
    held: tuple[set[int], set[int]] = (set(), set())
    for start, size, side in spans:
        sides[side].append(TensorRow(start, "uint8", (size,), (1,)))
        held[side].update(range(start, start + size))
    assert overlap(*sides) == bool(held[0] & held[1])
