"""Messages over a socket: whole, in pieces, and what is no message."""

import itertools
import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.protocol import framing
from evaluator.referee.protocol.framing import WireError

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@given(st.binary(max_size=200_000), st.lists(st.integers(0, 200_004), max_size=4))
def test_a_message_is_read_whole_however_it_arrives(body: bytes, cuts: list[int]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        sent = len(body).to_bytes(4, "big") + body
        edges = sorted({0, *(cut for cut in cuts if cut < len(sent)), len(sent)})
        for start, end in itertools.pairwise(edges):
            theirs.sendall(sent[start:end])
        assert framing.receive_last(ours, deadline=time.monotonic() + 30) == body


@pytest.mark.parametrize("before", [b"", b"\0", b"\0\0\0\5", b"\0\0\0\5abcd"])
def test_a_connection_that_ends_before_the_message_does_gives_none(pair: Pair, before: bytes) -> None:
    ours, theirs = pair
    theirs.sendall(before)
    theirs.close()
    with pytest.raises(WireError, match="connection closed"):
        framing.receive_last(ours)


def test_a_message_that_stops_in_the_middle_is_not_waited_for_beyond_the_deadline(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"\0\0\0\5abcd")
    with pytest.raises(TimeoutError):
        framing.receive_last(ours, deadline=time.monotonic() + 0.05)


def test_a_message_that_more_follows_is_refused(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"\0\0\0\2{}" + b"\0\0\0\2{}")
    with pytest.raises(WireError, match="6 bytes more than the message"):
        framing.receive_last(ours)


def test_a_message_that_is_too_long_is_refused_before_it_is_read(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall((framing.MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"))
    for receive in (framing.receive_last, framing.receive):
        with pytest.raises(WireError, match="more than 4194304"):
            receive(ours)
        theirs.sendall((framing.MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"))


def test_of_messages_that_follow_each_other_each_is_read_by_itself(pair: Pair) -> None:
    ours, theirs = pair
    for number in range(3):
        framing.send(theirs, {"number": number})
    assert [framing.receive(ours)["number"] for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_object_of_json_is_no_message(body: bytes) -> None:
    with pytest.raises(WireError, match="not "):
        framing.parse(body)
