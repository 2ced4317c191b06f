"""Records of launches: what is read out of their bytes, and what memory before a launch must be to be believed."""

import struct

import pytest
import torch

from evaluator.referee.runner.platforms.cuda import records
from evaluator.referee.runner.platforms.gpu.memory import RecordError

X, Y = 0x7000_0000, 0x7100_0000


def memory(place: int, content: bytes) -> bytes:
    return b"M" + struct.pack("=QQ", place, len(content)) + content


def launch(*arguments: bytes, name: bytes = b"k", blocks: int = 2) -> bytes:
    given = b"".join(struct.pack("=I", len(each)) + each for each in arguments)
    size = struct.pack("=6I2QI", blocks, 1, 1, 32, 2, 1, 64, 48 << 10, len(arguments))
    return b"L" + struct.pack("=I", len(name)) + name + size + given


def variable(name: bytes, content: bytes) -> bytes:
    return b"S" + struct.pack("=I", len(name)) + name + struct.pack("=QQ", 4, len(content)) + content


def pointer(place: int) -> bytes:
    return struct.pack("=Q", place)


def content_of(value: torch.Tensor) -> bytes:
    return value.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def call(x: torch.Tensor, *, shift: int = 0, before: bytes | None = None, n: int = 5, table: bytes = b"t") -> bytes:
    """What a call on `x` is recorded as; `shift`: where the process has its memory."""
    first, second = X + shift, Y - shift
    return b"".join(
        (
            memory(first, content_of(x) if before is None else before),
            memory(second, b"\xff" * 20),
            variable(b"factors", table),
            launch(pointer(first + 4), pointer(second), struct.pack("=i", n)),
        )
    )


def why_not(earlier: bytes, record: bytes, before: torch.Tensor, x: torch.Tensor) -> str:
    """Why the later record is not believed; empty if it is."""
    try:
        records.see_that_nothing_else_worked(records.read(earlier), records.read(record), [before], [x])
    except RecordError as error:
        return str(error)
    return ""


def test_a_record_is_read_as_it_was_written() -> None:
    x = torch.arange(5.0)
    found = records.read(call(x))
    assert found.events == (
        records.Memory(content_of(x)),
        records.Memory(b"\xff" * 20),
        records.Variable("factors", 4, b"t"),
        records.Launch("k", (2, 1, 1), (32, 2, 1), 64, 48 << 10, (((0, 4),), ((1, 0),), (struct.pack("=i", 5),))),
    )
    assert [each.threads for each in found.launches] == [64]


def test_a_pointer_is_into_what_lies_at_its_place_now() -> None:
    parts = (memory(X, bytes(16)), launch(pointer(X)), memory(X - 8, bytes(16)), launch(pointer(X), pointer(X + 9)))
    last = records.read(b"".join(parts)).launches[-1]
    assert last.arguments == (((2, 8),), (pointer(X + 9),))  # of the other nothing is known any more


def test_a_pointer_behind_the_last_element_is_one_into_the_memory() -> None:
    found = records.read(memory(X, bytes(16)) + launch(pointer(X + 16), pointer(X + 17)))
    assert found.launches[0].arguments == (((0, 16),), (pointer(X + 17),))
    assert found.regions.find(X + 8) == (0, 8) and found.regions.find(X - 1) is None


@pytest.mark.parametrize("kept", [17, 9, 1])
def test_a_record_without_room_says_so(kept: int) -> None:
    with pytest.raises(RecordError, match="too large"):
        records.read(memory(X, b"abcdefgh")[:kept] + b"!")


@pytest.mark.parametrize(
    "record",
    [
        b"X",
        memory(X, b"abcd") + b"more",
        b"L\1\0",
        b"M" + b"\0" * 8,
        b"L" + b"\xff" * 4,
        memory(X, b"abcd")[:-1],
        b"M" + struct.pack("=QQ", X, 1 << 62),
    ],
)
def test_a_record_that_is_broken_is_refused(record: bytes) -> None:
    with pytest.raises(RecordError, match="broken"):
        records.read(record)


@pytest.mark.parametrize(
    "held",
    [
        lambda x: x,
        lambda x: x.half(),
        lambda x: x.double(),
        lambda x: torch.zeros(5),
    ],
    ids=["an input", "an input in half precision", "an input in double precision", "the same for all inputs"],
)
def test_what_memory_may_hold_before_a_launch(held) -> None:  # type: ignore[no-untyped-def]
    one, other = torch.randn(5), torch.randn(5)
    earlier, record = (call(x, shift=shift, before=content_of(held(x))) for x, shift in ((one, 0), (other, 4096)))
    assert why_not(earlier, record, one, other) == ""


def test_indices_and_masks_may_be_converted() -> None:
    one, other = torch.tensor([3, 1, 2, 0, 2]), torch.tensor([0, 2, 1, 1, 3])
    for kind in (torch.int32, torch.float32):
        earlier, record = (call(x, before=content_of(x.to(kind))) for x in (one, other))
        assert why_not(earlier, record, one, other) == ""


def test_one_form_of_an_input_in_one_call_and_another_in_the_other_could_carry_a_result() -> None:
    one, other = torch.randn(5), torch.randn(5)
    earlier, record = call(one, before=content_of(one.half())), call(other, before=content_of(other.bfloat16()))
    assert "argument 1 of k holds" in why_not(earlier, record, one, other)
    earlier, record = call(one, before=content_of(one)), call(other, before=content_of(one))
    assert why_not(earlier, record, one, other) == ""  # alike in both, whatever it is of
    assert "argument 1 of k holds" in why_not(call(one, before=bytes(20)), call(other), one, other)


def test_an_input_may_lie_in_memory_with_gaps_or_be_made_contiguous() -> None:
    one, other = torch.randn(4, 6).t(), torch.randn(4, 6).t()
    for held in (lambda x: x.t(), lambda x: x.contiguous()):
        assert why_not(*(call(x, before=content_of(held(x))) for x in (one, other)), one, other) == ""


@pytest.mark.parametrize(
    ("work", "why"),
    [
        ({"before": lambda x: content_of(x.relu())}, "argument 1 of k holds what something else has computed"),
        ({"before": lambda x: content_of(x + 0)[:-4] + b"abcd"}, "argument 1 of k holds"),
        ({"table": lambda x: content_of(x.sum())}, "factors is set to what something else has computed"),
        ({"n": lambda x: int(x.sum() * 1000)}, "what is launched depends on values of inputs"),
    ],
    ids=["torch's work", "an input but for an element", "a constant of the inputs", "a number of the inputs"],
)
def test_what_holds_work_on_the_inputs_proves_nothing(work, why: str) -> None:  # type: ignore[no-untyped-def]
    one, other = torch.randn(5), torch.randn(5)
    earlier, record = (call(x, **{name: made(x) for name, made in work.items()}) for x in (one, other))
    assert why in why_not(earlier, record, one, other)


def test_other_launches_for_other_inputs_prove_nothing() -> None:
    x = torch.randn(5)
    assert "depends on values" in why_not(call(x), call(x) + launch(pointer(X)), x, x)
    assert "depends on values" in why_not(call(x) + launch(name=b"k"), call(x) + launch(name=b"other"), x, x)
    assert "depends on values" in why_not(call(x) + launch(blocks=1), call(x) + launch(blocks=2), x, x)
