"""Answers written in short say what the long way says, or are not written."""

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.protocol.tensors import encode
from evaluator.referee.runner.reply_encoding import ReplyEncoder

SHAPES = st.lists(st.integers(0, 5), min_size=0, max_size=3).map(tuple)
DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])


def like(tensor: torch.Tensor) -> torch.Tensor:
    """Another one of the same form."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def full(value: Any) -> Any:
    return {"ok": True, **{"tree": encode(value)[0].to_json()}}


def learnt(value: Any) -> ReplyEncoder:
    encoder = ReplyEncoder()
    encoder.learn(value, encode(value)[0])
    return encoder


@given(
    forms=st.lists(st.tuples(SHAPES, DTYPES), min_size=1, max_size=4),
    kind=st.sampled_from([tuple, list]),
    alone=st.booleans(),
)
def test_the_short_answer_is_the_long_one(
    forms: list[tuple[tuple[int, ...], torch.dtype]], kind: type, alone: bool
) -> None:
    tensors = [torch.zeros(shape, dtype=dtype) for shape, dtype in forms]
    first: Any = tensors[0] if alone else kind(tensors)
    second: Any = like(tensors[0]) if alone else kind(like(tensor) for tensor in tensors)
    answer = learnt(first).again(second)
    assert answer is not None
    assert json.loads(answer) == full(second)


OTHERS: list[Any] = [
    torch.zeros(3, 2),
    torch.zeros(2, 3, dtype=torch.float64),
    torch.zeros(3, 2).t(),
    (torch.zeros(2, 3),),
    [torch.zeros(2, 3), 1.0],
    {"a": torch.zeros(2, 3)},
    torch.nn.Parameter(torch.zeros(2, 3)),
    torch.zeros(2, 3).to_sparse(),
    torch.zeros(2, 3, device="meta"),
    1.0,
    None,
    [],
]


@pytest.mark.parametrize("other", OTHERS, ids=[str(index) for index in range(len(OTHERS))])
def test_another_form_is_told_the_long_way(other: Any) -> None:
    assert learnt(torch.zeros(2, 3)).again(other) is None


def test_what_has_no_short_answer_is_forgotten() -> None:
    encoder = learnt(torch.zeros(2, 3))
    encoder.learn({"a": 1}, encode({"a": 1})[0])
    assert encoder.again(torch.zeros(2, 3)) is None
    assert ReplyEncoder().again(torch.zeros(2, 3)) is None


def test_a_lazy_conjugate_is_told_the_long_way_which_resolves_it() -> None:
    value = torch.complex(torch.ones(2, 3), torch.ones(2, 3))
    assert learnt(value).again(value.conj()) is None
    tree, [tensor] = encode(value.conj())
    assert not tensor.is_conj() and tensor.imag.eq(-1).all()
    assert tree.tensors[0].place == tensor.data_ptr()
    negative = value.conj().imag
    assert negative.is_neg()
    assert encode(negative)[1][0].eq(-1).all()
