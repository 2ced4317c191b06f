"""The messages of a call: answers in binary form say what the long form says; all else is refused."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.protocol import call_messages
from evaluator.referee.protocol.call_messages import Go
from evaluator.referee.protocol.framing import WireError
from evaluator.referee.protocol.tensors import DTYPES, Tree, TreeError, encode

SHAPES = st.lists(st.integers(0, 5), min_size=0, max_size=3).map(tuple)


@given(
    forms=st.lists(st.tuples(SHAPES, st.sampled_from(list(DTYPES.values()))), min_size=1, max_size=4),
    kind=st.sampled_from([tuple, list]),
    alone=st.booleans(),
    turned=st.booleans(),
)
def test_the_short_answer_is_the_long_one(
    forms: list[tuple[tuple[int, ...], torch.dtype]], kind: type, alone: bool, turned: bool
) -> None:
    tensors = [torch.zeros(shape, dtype=dtype) for shape, dtype in forms]
    tensors = [tensor.mT if turned and tensor.dim() > 1 else tensor for tensor in tensors]
    value: Any = tensors[0] if alone else kind(tensors)
    body = call_messages.pack(value)
    assert body is not None and body.startswith(call_messages.MARK)
    assert call_messages.unpack(body) == {"ok": True, "tree": encode(value)[0].to_json()}


LAZY = torch.complex(torch.ones(2, 3), torch.ones(2, 3)).conj()
OTHERS: list[Any] = [
    [torch.zeros(2, 3), 1.0],
    {"a": torch.zeros(2, 3)},
    torch.nn.Parameter(torch.zeros(2, 3)),
    torch.zeros(2, 3).to_sparse(),
    torch.zeros(2, 3, device="meta"),
    torch.zeros(2, 3, dtype=torch.uint16),
    LAZY,
    LAZY.imag,
    (torch.zeros(2), (torch.zeros(2),)),
    1.0,
    None,
    [],
    (),
]


@pytest.mark.parametrize("other", OTHERS, ids=[str(index) for index in range(len(OTHERS))])
def test_other_values_are_told_the_long_way(other: Any) -> None:
    assert call_messages.pack(other) is None


def test_the_long_way_resolves_lazy_conjugates_and_negations() -> None:
    tree, [tensor] = encode(LAZY)
    assert not tensor.is_conj() and tensor.imag.eq(-1).all()
    assert tree.tensors[0].place == tensor.data_ptr()
    assert LAZY.imag.is_neg()
    assert encode(LAZY.imag)[1][0].eq(-1).all()


GOOD = call_messages.pack((torch.zeros(2, 3), torch.zeros(4)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        call_messages.MARK,
        GOOD[:-1],
        GOOD + b"\0",
        call_messages.MARK + b"\x07\0\x01",
        call_messages.MARK + b"\x00\0\x02" + GOOD[4:],
        GOOD[:12] + b"\xff" + GOOD[13:],
        GOOD[:13] + b"\xff" + GOOD[14:],
    ],
    ids=["empty", "mark alone", "cut off", "longer", "no such kind", "two tensors as one", "no such type", "255 dims"],
)
def test_what_is_no_answer_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        call_messages.unpack(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(tail: bytes) -> None:
    try:
        message = call_messages.unpack(call_messages.MARK + tail)
        Tree.from_json(message["tree"])
    except (WireError, TreeError):
        pass


def test_negative_sizes_are_refused_where_trees_are_read() -> None:
    body = call_messages.pack(torch.zeros(2, 3))
    assert body is not None
    forged = body[:14] + b"\xff" * 8 + body[22:]
    with pytest.raises(TreeError):
        Tree.from_json(call_messages.unpack(forged)["tree"])


SPECS = st.recursive(
    st.builds(lambda value: {"scalar": value}, st.none() | st.booleans() | st.integers() | st.text(max_size=5)),
    lambda inner: st.builds(lambda values: {"list": values}, st.lists(inner, max_size=3)),
    max_leaves=5,
)


@given(
    st.builds(
        Go,
        seed=st.integers(0, 2**64 - 1),
        keep=st.booleans(),
        spec=st.none() | SPECS,
        state=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    )
)
def test_a_go_says_what_was_put_into_it(go: Go) -> None:
    assert Go.unpack(go.pack()) == go


def test_a_go_that_holds_nothing_but_a_seed_is_short() -> None:
    assert len(Go(7).pack()) == 9


@pytest.mark.parametrize("body", [b"", b"12345678", Go(7).pack() + b"no JSON", Go(7).pack() + b"[]"])
def test_what_is_no_go_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        Go.unpack(body)
