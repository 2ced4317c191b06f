"""Where outputs may lie: their strides, and whether they share memory with the inputs."""

import ctypes
import mmap
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.inbox import Inbox
from evaluator.referee.placement import badly_laid_out, in_inbox
from evaluator.referee.tree import TensorRow, describe


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


def test_an_output_in_the_inbox_is_found_through_every_mapping_of_it() -> None:
    inbox = Inbox(1 << 16, 2)
    mapped = mmap.mmap(inbox.fd, inbox.size)
    inside = torch.frombuffer(mapped, dtype=torch.float32, count=100, offset=4096)
    libc = ctypes.CDLL(None)
    libc.mremap.restype = ctypes.c_void_p
    libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    again = libc.mremap(inside.data_ptr(), 0, 4096, 1)
    twice = torch.frombuffer((ctypes.c_float * 100).from_address(again), dtype=torch.float32)
    own, shared = torch.ones(100), torch.ones(100).share_memory_()
    untouched = torch.frombuffer(mmap.mmap(-1, 1 << 20), dtype=torch.float32)
    values = [inside, twice, own, shared, untouched, torch.zeros(0)]
    assert in_inbox(os.getpid(), [row(value) for value in values]) == [True, True, False, False, False, False]
    last = row(twice).place + 4096 - 4
    reaching = [TensorRow(last, "float32", (2,), (1,)), TensorRow(last + 4 - 2 * 4096, "float32", (1025,), (1,))]
    assert in_inbox(os.getpid(), reaching) == [True, True]
    inbox.close()
