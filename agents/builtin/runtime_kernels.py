"""Kernels that make one call of a function of the runtime, and what they make of a parameter."""

from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.call_body import PREPARED
from agents.builtin.generated import Input

_CONST, _OUT = "const float* __restrict__", "float* __restrict__"


def runtime_kernel(function: str, numbers: tuple[int, ...], inputs: int, *, without_last: bool = False) -> Kernel:
    """A kernel that calls `kw::function<numbers>` with pointers to its inputs and, at last, to its output.

    Args:
        function: its name in the runtime.
        numbers: its template arguments, which are part of the kernel's name.
        inputs: how many inputs the function takes.
        without_last: it is called without the last input, for which it gets a null pointer.
    """
    given = [f"in_ptr{number}" for number in range(inputs - without_last)]
    name = "_".join([function, *map(str, numbers), *(["alone"] if without_last else [])])
    passed = ", ".join([*given, *(["nullptr"] if without_last else []), "out_ptr0"])
    body = f"\n  kw::{function}<{', '.join(map(str, numbers))}>({passed});\n"
    return Kernel(name, (*[_CONST] * len(given), _OUT), (*given, "out_ptr0"), body)


def write_prepared(target: str, parameter: Input, name: str, size: tuple[int, ...], kernel: Kernel) -> str:
    """The statement of a `call` that assigns `target` what a kernel makes of a parameter, kept between calls.

    Args:
        target: the name that is assigned.
        parameter: the parameter.
        name: its name in the `call`.
        size: the shape of what is made, float32.
        kernel: takes pointers to the parameter and to what is made.
    """
    return f"{target} = {PREPARED}(self, {f'{parameter.name} {kernel.name}'!r}, {name}, {size}, {kernel.name})"
