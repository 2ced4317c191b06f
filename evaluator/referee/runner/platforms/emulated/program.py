"""The module of candidates that has their platform's name: C source, arrays without elements, calls of C functions."""

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from ....protocol import kernel_program as kp
from ....protocol.tensors import DTYPES


class Array:
    """An array of the call that is being described: `shape` and `dtype`, no elements. Kernels get a pointer to it.

    It lies in memory contiguously, its first element at a multiple of 64 bytes.
    """

    def __init__(self, program: "Builder", number: int, dtype: str, shape: tuple[int, ...]) -> None:
        self._program = program
        self._number = number
        self._dtype = dtype
        self._shape = shape

    @property
    def shape(self) -> tuple[int, ...]:
        """Its size along each dimension."""
        return self._shape

    @property
    def dtype(self) -> Any:
        """The type of its elements, as torch names it."""
        return DTYPES[self._dtype]

    @property
    def ndim(self) -> int:
        """The number of its dimensions."""
        return len(self._shape)

    def size(self, dim: int | None = None) -> Any:
        """Its size along a dimension, or along each."""
        return self._shape if dim is None else self._shape[dim]

    def dim(self) -> int:
        """The number of its dimensions."""
        return len(self._shape)

    def numel(self) -> int:
        """The number of its elements."""
        return math.prod(self._shape)

    def reshape(self, *shape: Any) -> "Array":
        """The same array under another shape."""
        wanted = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if -1 in wanted:
            known = -math.prod(wanted)
            wanted = tuple(self.numel() // max(1, known) if size == -1 else size for size in wanted)
        if math.prod(wanted) != self.numel():
            raise ValueError(f"{self._program.name}: an array of shape {self._shape} has no shape {wanted}")
        return Array(self._program, self._number, self._dtype, tuple(int(size) for size in wanted))

    view = reshape


class Kernels:
    """The functions of one C source, by name: `kernels.softmax(x, y, rows, columns)` adds a call to the program."""

    def __init__(self, current: Callable[[], "Builder"], source: str, flags: Sequence[str]) -> None:
        self._current = current
        self._source = source
        self._flags = tuple(flags)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)

        def launch(*arguments: Any) -> None:
            self._current().launch(self._source, self._flags, name, arguments)

        return launch


class Builder:
    """The program of one call while it is being described."""

    def __init__(self, name: str, states: dict[str, tuple[str, tuple[int, ...]]]) -> None:
        self.name = name
        self.source = ""
        self.flags: tuple[str, ...] = ()
        self.arrays: list[kp.Input | kp.State | kp.Made] = []
        self.launches: list[kp.Launch] = []
        self._states = states
        self._loaded: dict[str, Array] = {}

    def add(self, array: kp.Input | kp.State | kp.Made, dtype: str, shape: tuple[int, ...]) -> Array:
        """An array of the program.

        Raises:
            ValueError: there are too many.
        """
        if len(self.arrays) >= kp.MAX_ARRAYS:
            raise ValueError(f"{self.name}: a program has at most {kp.MAX_ARRAYS} arrays")
        self.arrays.append(array)
        return Array(self, len(self.arrays) - 1, dtype, shape)

    def state(self, name: str) -> Array:
        """A parameter or buffer by the reference's name.

        Raises:
            ValueError: the reference has none of that name.
        """
        if name not in self._states:
            raise ValueError(f"{self.name}.state: the reference has no {name!r}; it has {sorted(self._states)}")
        if name not in self._loaded:
            self._loaded[name] = self.add(kp.State(name), *self._states[name])
        return self._loaded[name]

    def empty(self, shape: Any, dtype: Any) -> Array:
        """An array without content.

        Raises:
            ValueError: the shape or the dtype is none.
        """
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        name = str(dtype).removeprefix("torch.")
        if name not in DTYPES or not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise ValueError(f"{self.name}.empty: no array of shape {sizes} and dtype {dtype}")
        return self.add(kp.Made(name, sizes), name, sizes)

    def launch(self, source: str, flags: tuple[str, ...], name: str, arguments: Sequence[Any]) -> None:
        """Add a call of a C function.

        Raises:
            TypeError: an argument is neither an array of this program nor a number.
            ValueError: there are too many calls or arguments, or they are of another source.
        """
        if self.source and (self.source, self.flags) != (source, flags):
            raise ValueError(f"{self.name}: all kernels of a call must come from one {self.name}.build(...)")
        if len(self.launches) >= kp.MAX_LAUNCHES or len(arguments) > kp.MAX_ARGUMENTS:
            raise ValueError(
                f"{self.name}: at most {kp.MAX_LAUNCHES} calls of kernels, "
                f"each with at most {kp.MAX_ARGUMENTS} arguments"
            )
        self.source, self.flags = source, flags
        self.launches.append(kp.Launch(name, tuple(self._argument(name, value) for value in arguments)))

    def _argument(self, name: str, value: Any) -> kp.Argument:
        if isinstance(value, Array):
            return kp.ArrayArgument(self.number_of(value))
        if isinstance(value, bool | int):
            return int(value)
        if isinstance(value, float):
            return value
        raise TypeError(f"{self.name}: {name}(...) takes arrays and numbers, not {type(value).__name__}")

    def number_of(self, value: Array) -> int:
        """The number of an array.

        Raises:
            TypeError: it is of another call.
        """
        if value._program is not self:
            raise TypeError(f"{self.name}: this array belongs to another call")
        return value._number

    def spec(self, value: Any, outputs: list[int], rows: list[tuple[str, tuple[int, ...]]]) -> Any:
        """The nesting of what a model returned; its arrays are appended to `outputs`, with their forms to `rows`.

        Raises:
            TypeError: it holds something that is no array.
        """
        if isinstance(value, Array):
            outputs.append(self.number_of(value))
            rows.append((value._dtype, value.shape))
            return {"tensor": len(outputs) - 1}
        if isinstance(value, list | tuple):
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self.spec(item, outputs, rows) for item in value]}
        raise TypeError(f"forward returned {type(value).__name__}; on this platform it returns arrays of {self.name}")


def module(name: str, current: Callable[[], Builder]) -> ModuleType:
    """The module that candidates import by this name. `current` gives the program that is being described."""
    made = ModuleType(name, f"Kernels in C for platform {name}.")

    def build(source: str, flags: Sequence[str] = ("-O3",)) -> Kernels:
        if not isinstance(source, str):
            raise TypeError(f"{name}.build: takes C source as text")
        return Kernels(current, source, flags)

    functions: dict[str, Callable[..., Any]] = {
        "build": build,
        "state": lambda name: current().state(name),
        "empty": lambda shape, dtype: current().empty(shape, dtype),
        "empty_like": lambda array: current().empty(array.shape, array.dtype),
    }
    for function_name, function in functions.items():
        setattr(made, function_name, function)
    return made
