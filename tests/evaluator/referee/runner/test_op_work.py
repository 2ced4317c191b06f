"""What one call of a reference touches: what is looked up by an index, and never more than that."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import nn

from evaluator.referee.runner.oracle import count_work

FLOAT = 4


def table() -> torch.Tensor:
    return torch.randn(1000, 16)


def touched(forward: Callable[..., Any], *inputs: Any) -> int:
    return count_work(forward, list(inputs))["input_bytes"]


INDEX = torch.tensor([3, 5, 3, 999])
ROWS = 3 * 16 * FLOAT  # of different indices


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (lambda x, i: x.index_select(0, i), ROWS),
        (lambda x, i: x.index_select(0, i.int()), ROWS),
        (lambda x, i: x[i], ROWS),
        (lambda x, i: x[i - 1000], ROWS),
        (lambda x, i: x[:, 3:5][i], 3 * 2 * FLOAT),
        (lambda x, i: x[:, i % 16], 3 * 1000 * FLOAT),
        (lambda x, i: x[i, i % 16], 3 * FLOAT),
        (lambda x, i: x.t()[:, i], ROWS),
        (lambda x, i: F.embedding(i, x), ROWS),
        (lambda x, i: F.embedding_bag(i.view(2, 2), x, mode="sum"), ROWS),
        (lambda x, i: F.embedding_bag(i.view(2, 2), x, mode="sum", padding_idx=3), ROWS - 16 * FLOAT),
        (lambda x, i: x.gather(0, i[:, None]), 3 * FLOAT),
        (lambda x, i: torch.take_along_dim(x, i[:, None], 0), ROWS),
        (lambda x, i: x.take(i), 3 * FLOAT),
        (lambda x, i: x.index_add_(0, i, torch.ones(4, 16)), ROWS),
        (lambda x, i: x.index_put_((i,), torch.ones(16)), ROWS),
        (lambda x, i: x.index_fill_(0, i, 1.0), ROWS),
        (lambda x, i: x.scatter_(0, i[:, None], 1.0), 3 * FLOAT),
        (lambda x, i: F.nll_loss(x[i], i % 16), ROWS),
        (lambda x, i: F.nll_loss(x, torch.arange(1000) % 16), 1000 * FLOAT),
        (lambda x, i: F.nll_loss(x, torch.arange(1000) % 16, ignore_index=3), (1000 - 63) * FLOAT),
        (lambda x, i: x[i] + x[i].sum(), ROWS),
        (lambda x, i: x[:10].sum() + x[5:20].sum(), 20 * 16 * FLOAT),
        (lambda x, i: x[::2].sum(), 500 * 16 * FLOAT),
        (lambda x, i: x + 1, 1000 * 16 * FLOAT),
        (lambda x, i: x.index_copy(0, i, torch.ones(4, 16)), 1000 * 16 * FLOAT),
        (lambda x, i: x.view(torch.int32)[2:4] + 1, 2 * 16 * FLOAT),
        (lambda x, i: x.view(torch.int16)[2:4] + 1, 2 * 16 * FLOAT),
        (lambda x, i: torch.zeros(x.shape), 0),
        (lambda x, i: x.t(), 0),
        (lambda x, i: F.grid_sample(x.view(1, 1, 1000, 16), torch.zeros(1, 1, 1, 2), align_corners=False), 0),
    ],
)
def test_an_input_counts_as_far_as_it_is_touched(forward: Callable[..., Any], expected: int) -> None:
    assert touched(lambda x: forward(x, INDEX), table()) == expected


def test_expanded_inputs_count_what_lies_in_memory() -> None:
    row = torch.randn(16)
    assert touched(lambda x: x + 1, row.expand(1000, 16)) == 16 * FLOAT
    assert touched(lambda x: x[INDEX], row.expand(1000, 16)) <= 16 * FLOAT


def test_a_mask_looks_up_what_it_selects() -> None:
    mask = torch.zeros(1000, dtype=torch.bool)
    mask[:7] = True
    assert touched(lambda x, m: x[m], table(), mask) == 7 * 16 * FLOAT + 1000


def test_parameters_count_apart_from_inputs() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(1000, 16)
            self.product = nn.Linear(16, 32)
            self.unused = nn.Linear(100, 100)

        def forward(self, index: torch.Tensor) -> Any:
            return self.product(self.table(index))

    assert count_work(Model(), [INDEX]) == {
        "flops": 2 * 4 * 16 * 32,
        "input_bytes": 4 * 8,
        "state_bytes": ROWS + (16 * 32 + 32) * FLOAT,
    }


def test_the_call_changes_neither_the_model_nor_what_it_counts() -> None:
    norm = nn.BatchNorm1d(16)
    assert count_work(norm, [table()]) == count_work(norm, [table()])
    assert int(norm.num_batches_tracked) == 0


@given(st.lists(st.integers(0, 99), max_size=40), st.lists(st.integers(0, 99), max_size=40))
def test_what_several_lookups_touch_counts_once(first: list[int], second: list[int]) -> None:
    one, other = torch.tensor(first, dtype=torch.long), torch.tensor(second, dtype=torch.long)
    found = touched(lambda x: x[one].sum() + x.index_select(0, other).sum(), torch.randn(100, 3))
    assert found == len({*first, *second}) * 3 * FLOAT
