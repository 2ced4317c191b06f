"""Files with weights: their header is read and checked, and everything else is refused with a reason."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.weights_file import WeightRow, WeightsError, read_weights
from tests.support.weights import state_file

ONE_TWO = struct.pack("<2f", 1.0, 2.0)
STATE = {
    "weight": ("F32", [2], ONE_TWO),
    "other": ("BF16", [1, 2], b"\x80?\0@"),
    "none": ("I64", [0, 3], b""),
    "mask": ("BOOL", [2], b"\0\1"),
}


def test_a_file_says_what_tensors_it_holds_and_where() -> None:
    found = read_weights(state_file(STATE, __metadata__={"format": "pt"}))
    assert found.rows == (
        WeightRow("weight", "float32", (2,), 0, 8),
        WeightRow("other", "bfloat16", (1, 2), 8, 12),
        WeightRow("none", "int64", (0, 3), 12, 12),
        WeightRow("mask", "bool", (2,), 12, 14),
    )
    assert found.elements == ONE_TWO + b"\x80?\0@" + b"\0\1"


def test_the_digest_tells_weights_apart_by_values_and_by_names() -> None:
    digests = {
        read_weights(state_file({name: ("F32", [2], raw)})).digest
        for name, raw in (("a", ONE_TWO), ("b", ONE_TWO), ("a", ONE_TWO[::-1]))
    }
    assert len(digests) == 3
    assert read_weights(state_file(STATE)).digest == read_weights(state_file(STATE)).digest


WRONG = {
    "shorter than 8 bytes": b"PK",
    "its header would have": b"\xff" * 64,
    "cannot be read as a safetensors file: ": len(b"[1, 2]").to_bytes(8, "little") + b"[1, 2]",
    "it is cut off: mask ends at byte 14 of its elements, and there are 13": state_file(STATE)[:-1],
    "save Model().state_dict() of the model's file": state_file(STATE)[:-1],
    "do not fit its shape": state_file({**STATE, "weight": ("F32", [3], ONE_TWO)}),
    "of the dtype F4": state_file({**STATE, "weight": ("F4", [2], ONE_TWO)}),
    "overlap, or leave bytes": state_file(
        {"weight": STATE["weight"]}, again={"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    ),
    "bytes of elements and names": state_file(STATE) + b"more",
    "a size or an offset that is none": state_file({"weight": ("F32", [-2], ONE_TWO)}),
    "it holds no tensor": state_file({}, __metadata__={"format": "pt"}),
    "the shape of a is no list": state_file({}, a={"dtype": "U8", "shape": {}, "data_offsets": [0, 1]}) + b"1",
    "a size or an offset that is none;": state_file(
        {}, a={"dtype": "U8", "shape": [1 << 61, 1 << 61, 0], "data_offsets": [0, 0]}
    ),
    "a name twice": (lambda text: len(text).to_bytes(8, "little") + text)(b'{"a": 1, "a": 2}'),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_no_file_with_weights_is_refused_with_the_reason(message: str) -> None:
    with pytest.raises(WeightsError) as refused:
        read_weights(WRONG[message])
    assert message in str(refused.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "a", "__metadata__"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(header=JSON | st.dictionaries(st.text(max_size=3), JSON, max_size=3), elements=st.binary(max_size=16))
def test_any_header_is_read_or_refused(header: object, elements: bytes) -> None:
    text = json.dumps(header).encode()
    try:
        found = read_weights(len(text).to_bytes(8, "little") + text + elements)
    except WeightsError:
        return
    assert sum(row.end - row.begin for row in found.rows) == len(elements)


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read_weights(data)
    except WeightsError as error:
        assert len(str(error)) < 600
