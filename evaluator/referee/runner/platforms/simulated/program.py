"""The program of one call, built by a candidate out of symbolic arrays."""

from collections.abc import Mapping, Sequence
from typing import Any, Union

import torch

from ....protocol import array_machine as machine

Operand = Union["Array", float, int]


class Array:
    """A value of a program that is being built: `shape` and `dtype`, no elements."""

    def __init__(self, program: "Program", number: int, like: torch.Tensor) -> None:
        self._program = program
        self._number = number
        self._like = like  # on torch's device `meta`: shapes and dtypes are torch's own

    @property
    def shape(self) -> tuple[int, ...]:
        """Its size along each dimension."""
        return tuple(self._like.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The type of its elements."""
        return self._like.dtype

    def __add__(self, other: Operand) -> "Array":
        return self._two("add", self, other)

    def __radd__(self, other: Operand) -> "Array":
        return self._two("add", other, self)

    def __sub__(self, other: Operand) -> "Array":
        return self._two("subtract", self, other)

    def __rsub__(self, other: Operand) -> "Array":
        return self._two("subtract", other, self)

    def __mul__(self, other: Operand) -> "Array":
        return self._two("multiply", self, other)

    def __rmul__(self, other: Operand) -> "Array":
        return self._two("multiply", other, self)

    def __truediv__(self, other: Operand) -> "Array":
        return self._two("divide", self, other)

    def __rtruediv__(self, other: Operand) -> "Array":
        return self._two("divide", other, self)

    def __neg__(self) -> "Array":
        return self._program.make("negative", [self])

    def __matmul__(self, other: "Array") -> "Array":
        return self._program.make("product", [self, other])

    def _two(self, name: str, left: Operand, right: Operand) -> "Array":
        return self._program.make(name, [self._program.array(left, self), self._program.array(right, self)])


class Program:
    """The program of one call."""

    def __init__(self) -> None:
        self.instructions: list[machine.Instruction] = []

    def load(self, name: str, like: torch.Tensor, options: Mapping[str, Any]) -> Array:
        """A value that lies in memory."""
        self._append(machine.Instruction(name, (), options))
        return Array(self, len(self.instructions) - 1, like)

    def array(self, value: Operand, beside: Array) -> Array:
        """The value itself, or a constant of the type of the array beside it."""
        if isinstance(value, Array):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"array_machine: {type(value).__name__} is neither an array nor a number")
        dtype = str(beside.dtype).removeprefix("torch.")
        options = {"value": float(value), "dtype": dtype}
        return self.load("constant", torch.empty((), dtype=beside.dtype, device="meta"), options)

    def make(self, name: str, values: Sequence[Array], **options: Any) -> Array:
        """The value that an instruction makes.

        Raises:
            ValueError: there is no such instruction for these shapes.
        """
        for value in values:
            if not isinstance(value, Array) or value._program is not self:
                raise TypeError(f"array_machine.{name}: takes arrays of this call, not {type(value).__name__}")
        likes = [value._like for value in values]
        try:
            like, _ = machine.carry_out(
                machine.Instruction(name, tuple(range(len(values))), options), likes, (), {}, 1 << 40
            )
        except (RuntimeError, IndexError, ValueError, KeyError) as error:
            raise ValueError(f"array_machine.{name}: {str(error).splitlines()[0]}") from None
        self._append(machine.Instruction(name, tuple(value._number for value in values), options))
        return Array(self, len(self.instructions) - 1, like)

    def _append(self, instruction: machine.Instruction) -> None:
        if len(self.instructions) >= machine.MAX_INSTRUCTIONS:
            raise ValueError(f"array_machine: a program has at most {machine.MAX_INSTRUCTIONS} instructions")
        self.instructions.append(instruction)
