"""Records of launches as another process reads them: checked, because what a candidate's process tells is a claim.

`include/trace.h` writes them and says what their bytes are.
"""

import bisect
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..gpu.memory import RecordError, alike, forms_of

_MAX_EVENTS = 100_000


@dataclass(frozen=True)
class Memory:
    """What a region of memory holds before the next launch."""

    content: bytes


@dataclass(frozen=True)
class Variable:
    """What a variable of the device is set to, from a byte of it."""

    name: str
    offset: int
    content: bytes


@dataclass(frozen=True)
class Launch:
    """A launch.

    Attributes:
        kernel: as the compiler names it.
        grid: blocks.
        block: threads a block.
        dynamic_bytes: of shared memory.
        shared_limit: the most bytes of it that the kernel has been allowed.
        arguments: the bytes of each, between pointers: a pointer is the number of the `Memory` that it points into, in
            the order of the record, and how many bytes behind its beginning.
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    dynamic_bytes: int
    shared_limit: int
    arguments: tuple[tuple[bytes | tuple[int, int], ...], ...]

    @property
    def threads(self) -> int:
        """Threads a block."""
        return math.prod(self.block)


Event = Memory | Variable | Launch


@dataclass(frozen=True)
class Record:
    """The launches of one call, and what was set before each."""

    events: tuple[Event, ...]
    regions: "Regions"

    @property
    def launches(self) -> list[Launch]:
        """Its launches."""
        return [event for event in self.events if isinstance(event, Launch)]


def read(record: bytes) -> Record:
    """Read a record.

    Raises:
        RecordError: it is broken, or had no more room.
    """
    events: list[Event] = []
    regions = Regions()
    reader = _Reader(record)
    try:
        while reader.at < len(record):
            kind = reader.take(1)
            if kind == b"M":
                place, size = reader.numbers("=QQ")
                regions.add(place, size, len(events))
                events.append(Memory(reader.take(size)))
            elif kind == b"L":
                kernel = reader.text()
                *size_of, dynamic, limit, count = reader.numbers("=6I2QI")
                arguments = tuple(regions.resolved(reader.sized()) for _ in range(count))
                events.append(Launch(kernel, tuple(size_of[:3]), tuple(size_of[3:]), dynamic, limit, arguments))
            elif kind == b"S":
                name = reader.text()
                offset, size = reader.numbers("=QQ")
                events.append(Variable(name, offset, reader.take(size)))
            else:
                raise struct.error("an event of no kind")
            if len(events) > _MAX_EVENTS:
                raise RecordError("too many launches")
    except struct.error as error:
        if record.endswith(b"!"):
            raise RecordError("the tensors are too large for a record of launches") from None
        raise RecordError(f"the record of launches is broken: {error}") from None
    return Record(tuple(events), regions)


def see_that_nothing_else_worked(
    earlier: Record, record: Record, before: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> None:
    """See that a record holds no memory that could hold work of something else than kernels on the inputs.

    Args:
        earlier: the record of an earlier call, read before the later inputs were given.
        record: that of the call that is judged.
        before: the tensors of the earlier call.
        inputs: those of the later one.

    Raises:
        RecordError: something else than kernels has had part in the work.
    """
    if [_form(event) for event in earlier.events] != [_form(event) for event in record.events]:
        raise RecordError("what is launched depends on values of inputs")
    first, second = forms_of(before), forms_of(inputs)
    for number, (old, new) in enumerate(zip(earlier.events, record.events, strict=True)):
        if isinstance(old, Launch) or isinstance(new, Launch) or alike(old.content, new.content, first, second):
            continue
        if isinstance(new, Variable):
            raise RecordError(f"{new.name} is set to what something else has computed of the inputs")
        user = _user(record.events, number)
        raise RecordError(f"{user} holds what something else has computed of the inputs before the launch")


def _form(event: Event) -> object:
    """What must be alike in both calls."""
    if isinstance(event, Memory):
        return len(event.content)
    if isinstance(event, Variable):
        return event.name, event.offset, len(event.content)
    return event


def _user(events: Sequence[Event], number: int) -> str:
    """The argument that memory is given as, of the next launch with it."""
    for event in events[number:]:
        if isinstance(event, Launch):
            for position, argument in enumerate(event.arguments, 1):
                if any(isinstance(part, tuple) and part[0] == number for part in argument):
                    return f"argument {position} of {event.kernel}"
    return "memory of a kernel"


class _Reader:
    def __init__(self, record: bytes) -> None:
        self._record = record
        self.at = 0

    def numbers(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self._record, self.at)
        self.at += struct.calcsize(form)
        return found

    def take(self, size: int) -> bytes:
        if size > len(self._record) - self.at:
            raise struct.error("it ends early")
        self.at += size
        return self._record[self.at - size : self.at]

    def sized(self) -> bytes:
        return self.take(*self.numbers("=I"))

    def text(self) -> str:
        return self.sized().decode("utf-8", "replace")


class Regions:
    """The memory that has been told of so far, by its first address. What lies where other memory lay replaces it."""

    def __init__(self) -> None:
        self._places: list[int] = []
        self._known: dict[int, tuple[int, int]] = {}  # bytes, and the number of the event

    def add(self, place: int, size: int, number: int) -> None:
        """Note what an event tells of."""
        first = bisect.bisect_left(self._places, place)
        last = bisect.bisect_left(self._places, place + max(1, size))
        for gone in self._places[first:last]:
            del self._known[gone]
        self._places[first:last] = [place]
        self._known[place] = size, number

    def find(self, place: int) -> tuple[int, int] | None:
        """The number of the event that told of the memory at a place or just before it, and the offset in it."""
        index = bisect.bisect_right(self._places, place) - 1
        if index < 0:
            return None
        begin = self._places[index]
        size, number = self._known[begin]
        return (number, place - begin) if place <= begin + size else None

    def resolved(self, argument: bytes) -> tuple[bytes | tuple[int, int], ...]:
        """An argument with each pointer as `Launch` has it."""
        words = (argument[at : at + 8] for at in range(0, len(argument), 8))
        return tuple((self.find(int.from_bytes(word, "little")) if len(word) == 8 else None) or word for word in words)
