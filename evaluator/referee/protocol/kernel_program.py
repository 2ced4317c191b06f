"""Programs of platforms `riscv` and `arm64`: C source, arrays, and calls of its functions on them, as data.

A candidate's Python builds a program out of symbolic arrays before it could have seen an input
(`runner/platforms/emulated/program.py`). The referee keeps it and has it run (`platforms/emulated.py`) in a process of
its own (`runner/platforms/emulated/guest.py`).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .tensors import DTYPES

MAX_ARRAYS = 128
MAX_LAUNCHES = 1024
MAX_ARGUMENTS = 31
MAX_SOURCE = 256 * 1024
FLAGS = (
    *("-O0", "-O1", "-O2", "-O3", "-ffast-math", "-ffp-contract=off", "-ffp-contract=fast"),
    *("-fno-vectorize", "-fno-slp-vectorize", "-funroll-loops", "-fno-unroll-loops"),
    *("-fno-builtin", "-fno-strict-aliasing"),
)
"""What a candidate may add to the compiler's options."""

_MAX_DIMS = 16
_NAME = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)
_INT64 = 1 << 63


class ProgramError(Exception):
    """What a candidate's process sent is no program. The message says why."""


@dataclass(frozen=True)
class Input:
    """The call's input tensor of this number, contiguous."""

    number: int
    label: str = ""


@dataclass(frozen=True)
class State:
    """A parameter or buffer by the reference's name, contiguous and read-only."""

    name: str

    @property
    def label(self) -> str:
        """How messages name it."""
        return self.name


@dataclass(frozen=True)
class Made:
    """An array without content, for outputs and intermediate results."""

    dtype: str
    shape: tuple[int, ...]
    label: str = ""

    @property
    def nbytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


@dataclass(frozen=True)
class ArrayArgument:
    """A pointer to the array of this number."""

    array: int


Argument = ArrayArgument | int | float


@dataclass(frozen=True)
class LaunchShape:
    """What is compiled of a launch: the function, and of each argument whether it is an array, an integer, a number."""

    function: str
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Launch:
    """One call of a C function."""

    function: str
    arguments: tuple[Argument, ...]

    @property
    def shape(self) -> LaunchShape:
        """What is compiled of it."""
        names = {ArrayArgument: "array", int: "integer", float: "number"}
        return LaunchShape(self.function, tuple(names[type(argument)] for argument in self.arguments))


@dataclass(frozen=True)
class Program:
    """The program of one call. `outputs` are the numbers of the arrays that are the call's outputs, in order."""

    source: str
    flags: tuple[str, ...]
    arrays: tuple[Input | State | Made, ...]
    launches: tuple[Launch, ...]
    outputs: tuple[int, ...]

    def shapes_of_launches(self) -> list[LaunchShape]:
        """What is compiled of the launches, each once."""
        return list(dict.fromkeys(launch.shape for launch in self.launches))

    def to_json(self) -> dict[str, Any]:
        """The program as JSON."""
        arrays: list[dict[str, Any]] = []
        for array in self.arrays:
            if isinstance(array, Input):
                arrays.append({"input": array.number})
            elif isinstance(array, State):
                arrays.append({"state": array.name})
            else:
                arrays.append({"dtype": array.dtype, "shape": list(array.shape)})
        launches = [
            [launch.function, [{"array": each.array} if isinstance(each, ArrayArgument) else _number(each)
                               for each in launch.arguments]]
            for launch in self.launches
        ]  # fmt: skip
        return {
            "source": self.source,
            "flags": list(self.flags),
            "arrays": arrays,
            "launches": launches,
            "outputs": list(self.outputs),
        }


def parse(data: Any, *, inputs: int, states: Sequence[str], limit_bytes: int) -> Program:
    """Read a program that a runner sent, without trusting anything in it.

    Args:
        data: what it sent.
        inputs: the number of the call's input tensors.
        states: the names of the reference's parameters and buffers.
        limit_bytes: the most that the arrays which it makes may take together.

    Raises:
        ProgramError: it is not a program.
    """
    try:
        source, flags = data["source"], tuple(_listed(data["flags"], len(FLAGS)))
        if not isinstance(source, str) or len(source) > MAX_SOURCE or "\0" in source:
            raise ProgramError(f"its source is no text of at most {MAX_SOURCE:,} characters")
        source.encode()
        for flag in flags:
            if flag not in FLAGS:
                raise ProgramError(f"flag {str(flag)[:40]!r}: only these may be given: {' '.join(FLAGS)}")
        arrays = tuple(_array(entry, inputs, states) for entry in _listed(data["arrays"], MAX_ARRAYS))
        if sum(array.nbytes for array in arrays if isinstance(array, Made)) > limit_bytes:
            raise ProgramError(f"the arrays that it makes take more than {limit_bytes:,} bytes")
        launches = tuple(_launch(entry, len(arrays)) for entry in _listed(data["launches"], MAX_LAUNCHES))
        outputs = tuple(_index(number, len(arrays)) for number in _listed(data["outputs"], MAX_ARRAYS))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ProgramError(f"malformed program: {str(error)[:80]!r}") from None
    return Program(source, flags, arrays, launches, outputs)


def _array(entry: Mapping[str, Any], inputs: int, states: Sequence[str]) -> Input | State | Made:
    if "input" in entry:
        return Input(_index(entry["input"], inputs))
    if "state" in entry:
        if entry["state"] not in states:
            raise ProgramError(
                f"state: the reference has no {str(entry['state'])[:80]!r}; it has {sorted(states)[:20]}"
            )
        return State(entry["state"])
    shape = _listed(entry["shape"], _MAX_DIMS)
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"dtype {str(entry['dtype'])[:20]}")
    return Made(entry["dtype"], tuple(_index(size, 1 << 40) for size in shape))


def _launch(entry: Any, arrays: int) -> Launch:
    name, arguments = entry
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ProgramError(f"{str(name)[:40]!r} is no name of a C function")
    return Launch(name, tuple(_argument(each, arrays) for each in _listed(arguments, MAX_ARGUMENTS)))


def _argument(value: Any, arrays: int) -> Argument:
    if isinstance(value, dict):
        if "array" in value:
            return ArrayArgument(_index(value["array"], arrays))
        return float(value["number"])
    if isinstance(value, bool) or not isinstance(value, int) or not -_INT64 <= value < _INT64:
        raise ValueError(f"argument {str(value)[:20]}")
    return value


def _number(value: int | float) -> Any:
    """JSON has one kind of number and no infinity."""
    return {"number": repr(value)} if isinstance(value, float) else value


def _listed(entries: Any, most: int) -> list[Any]:
    if not isinstance(entries, list) or len(entries) > most:
        raise ValueError(f"no list of at most {most}")
    return entries


def _index(value: Any, below: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < below:
        raise ValueError(f"{str(value)[:20]} is no number from 0 to {below - 1}")
    return value
