"""Records of launches as another process reads them: checked, because what a candidate's process tells is a claim."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ....protocol.gpu_checks import NO_KERNEL
from ..gpu.memory import RecordError, alike, forms_of

_MAX_EVENTS, _MAX_REGIONS, _MAX_PROGRAMS = 20_000, 4096, 50_000_000
_MAX_TEXT = 200
_TYPES = ("fp16", "bf16", "fp32", "fp64", "u1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


@dataclass(frozen=True)
class Region:
    """Memory of the candidate's process: first address, bytes, and bytes an element."""

    base: int
    size: int
    element: int


@dataclass(frozen=True)
class Record:
    """The launches of one call.

    Attributes:
        events: `(region, content)` for memory as it was before the next launch, or the configurations of a launch.
        regions: the memory that they use.
        problem: why it is not whole.
    """

    events: "tuple[tuple[int, bytes] | tuple[dict[str, Any], ...], ...]"
    regions: tuple[Region, ...]
    problem: str = ""

    @property
    def launches(self) -> "list[tuple[dict[str, Any], ...]]":
        """The configurations of each launch."""
        return [event for event in self.events if event and isinstance(event[0], dict)]

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels that were launched, by name."""
        return tuple(dict.fromkeys(variant["kernel"] for launch in self.launches for variant in launch))

    @property
    def functions(self) -> tuple[str, ...]:
        """Functions that launches pass to kernels."""
        given = (each for launch in self.launches for variant in launch for each in variant["arguments"].values())
        return tuple(dict.fromkeys(each["function"] for each in given if "function" in each))


def read(tensors: Sequence[torch.Tensor]) -> Record:
    """The record that lies in tensors of bytes: JSON first, then memory.

    Raises:
        RecordError: it is none.
    """
    try:
        told = json.loads(tensors[0].numpy().tobytes())
        regions = tuple(
            Region(_whole(each["base"]), _whole(each["bytes"]), max(1, _whole(each["element"])))
            for each in told["regions"]
        )
        blobs = [each.numpy().tobytes() for each in tensors[1:]]
        if len(regions) > _MAX_REGIONS or len(told["events"]) > _MAX_EVENTS:
            raise ValueError("too long")
        events = tuple(_event(each, regions, blobs) for each in told["events"])
        return Record(events, regions, str(told["problem"])[:_MAX_TEXT])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise RecordError(f"the record of launches is broken: {str(error)[:80]}") from None


def _event(told: Any, regions: Sequence[Region], blobs: Sequence[bytes]) -> Any:
    if "launch" in told:
        return tuple(_variant(each, regions) for each in told["launch"][:_MAX_TEXT])
    index, content = _whole(told["memory"]), blobs[_whole(told["blob"])]
    if len(content) != regions[index].size:
        raise ValueError("memory of another length")
    return index, content


def _variant(told: Any, regions: Sequence[Region]) -> dict[str, Any]:
    grid = [_whole(each) for each in told["grid"]]
    if len(grid) != 3 or math.prod(grid) > _MAX_PROGRAMS:
        raise ValueError("a grid that no launch has")
    options = {str(name): int(value) for name, value in told["options"].items() if name.isidentifier()}
    arguments = {str(name)[:_MAX_TEXT]: _argument(each, regions, 0) for name, each in told["arguments"].items()}
    return {"kernel": _name(told["kernel"]), "grid": grid, "options": options, "arguments": arguments}


def _argument(told: Any, regions: Sequence[Region], depth: int) -> dict[str, Any]:
    if "region" in told:
        index, dtype = _whole(told["region"]), told["dtype"]
        if index >= max(1, len(regions)):
            raise ValueError("a pointer to nothing")
        if dtype not in _TYPES:
            raise ValueError(f"a tensor of type {str(dtype)[:20]}")
        return {"region": index, "offset": _whole(told["offset"]), "dtype": dtype}
    if "function" in told:
        return {"function": _name(told["function"])}
    if "type" in told:
        return {"type": _name(told["type"])}
    if "tuple" in told and depth < 4:
        return {"tuple": [_argument(each, regions, depth + 1) for each in told["tuple"]]}
    value = told["value"]
    if (isinstance(value, str) and len(value) > _MAX_TEXT) or not isinstance(value, bool | int | float | str | None):
        raise ValueError("an argument of no kind")
    if isinstance(value, int) and abs(value) >= 1 << 64:
        raise ValueError("too large a number")
    return {"value": value}


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.isidentifier() or len(value) > _MAX_TEXT:
        raise ValueError("a name of no function")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError("a number of no size")
    return value


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
    for each in (earlier, record):
        if each.problem:
            raise RecordError(each.problem)
    if not record.launches:
        raise RecordError(NO_KERNEL)
    if len(earlier.events) != len(record.events):
        raise RecordError("other launches for other inputs: what is launched depends on values of inputs")
    first, second = forms_of(before), forms_of(inputs)
    for number, (old, new) in enumerate(zip(earlier.events, record.events, strict=True)):
        if isinstance(new[0], dict) or isinstance(old[0], dict):
            if json.dumps(old) != json.dumps(new):
                raise RecordError(_difference(old, new))
            continue
        if old[0] != new[0] or not alike(old[1], new[1], first, second):
            raise RecordError(
                f"{_user(record, number, new[0])} holds what torch has computed of the inputs before the launch"
            )


def _difference(before: Any, event: Any) -> str:
    if isinstance(before[0], dict) and isinstance(event[0], dict):
        for one, other in zip(before, event, strict=False):
            for name, value in other["arguments"].items():
                if json.dumps(one["arguments"].get(name)) != json.dumps(value):
                    return f"argument {name} of kernel {other['kernel']} depends on values of inputs"
    return "what is launched depends on values of inputs"


def _user(record: Record, position: int, index: int) -> str:
    """The argument that memory is given as, of the next launch with it."""
    for event in record.events[position:]:
        for variant in event[:1]:
            if isinstance(variant, dict):
                for name, each in variant["arguments"].items():
                    if each.get("region") == index:
                        return f"argument {name} of kernel {variant['kernel']}"
    return "memory of a kernel"


def memory_of(record: Record, place: int, size: int) -> tuple[int, int] | None:
    """The region that holds an output, and the output's offset in it; the one that was used last."""
    for index in reversed(range(len(record.regions))):
        region = record.regions[index]
        if region.base <= place and place + size <= region.base + region.size:
            return index, place - region.base
    return None
