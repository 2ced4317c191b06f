"""What memory may hold before a kernel is launched, if nothing but kernels is to have had part in the work.

Two calls are recorded, on inputs that have nothing to do with each other. Memory is believed if it holds the same in
both, or the same form of the same input. Were one form enough in one call and another in the other, the choice between
them could tell a kernel what something else has computed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import torch

from ....protocol.framing import Message

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_OTHERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

Forms = Mapping[bytes, set[tuple[int, str]]]
"""Which input the bytes are, and in which form."""


class RecordError(Exception):
    """A record of launches proves nothing: it is broken, or something else than kernels has had part in the work."""


def forms_of(inputs: Iterable[torch.Tensor]) -> Forms:
    """The bytes of each input: as it lies, and contiguous in each type that it may be converted to."""
    found: defaultdict[bytes, set[tuple[int, str]]] = defaultdict(set)
    for number, value in enumerate(inputs):
        found[_span(value)].add((number, "as it lies"))
        kinds = _FLOATS if value.is_floating_point() else (*_OTHERS, *_FLOATS)
        for kind in dict.fromkeys((value.dtype, *kinds)):
            found[_span(value.contiguous().to(kind))].add((number, str(kind)))
    return found


def alike(before: bytes, content: bytes, earlier: Forms, later: Forms) -> bool:
    """Whether memory is believed that held `before` in the earlier call and `content` in the later one.

    Args:
        before: of the earlier call.
        content: of the later call.
        earlier: the forms of the earlier call's inputs.
        later: those of the later call's.
    """
    return before == content or bool(earlier.get(before, set()) & later.get(content, set()))


def see_one_place(before: Sequence[object], later: Sequence[object]) -> None:
    """See that outputs lie at the same places of memory in both calls: else the place is an answer.

    Args:
        before: where each output of the earlier call lies, as the record numbers memory.
        later: where those of the later one do.

    Raises:
        RecordError: they do not.
    """
    if list(before) != list(later):
        raise RecordError("where the outputs lie in the memory of kernels depends on values of inputs")


def places_in(message: Message) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Address and bytes of each output of the earlier call, and of the later one."""
    before, later = ([(int(place), int(size)) for place, size in message[name]] for name in ("places_before", "places"))
    return before, later


def span_bytes(value: torch.Tensor) -> int:
    """How many bytes lie from a tensor's first element to the end of its last."""
    if not value.numel():
        return 0
    last = sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
    return (last + 1) * value.element_size()


def _span(value: torch.Tensor) -> bytes:
    size = span_bytes(value) // value.element_size()
    return value.as_strided((size,), (1,)).view(torch.uint8).numpy().tobytes()
