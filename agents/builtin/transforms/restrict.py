"""Tells the compiler which of a kernel's pointers share no memory, so that it may keep what it has read."""

from dataclasses import replace

from agents.builtin.analysis.buffers import read_buffers
from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.compilation_unit import CompilationUnit


def restrict(unit: CompilationUnit) -> CompilationUnit:
    """Marks a pointer `__restrict__` where no other argument of the same call shares its buffer."""
    buffers = read_buffers(unit)

    def change(kernel: Kernel) -> Kernel:
        uses = buffers.uses.get(kernel.name, ())
        if len(uses) != len(kernel.types):
            return kernel
        roots = [buffers.roots.get(name, "") for name in uses]
        types = tuple(
            f"{kind} __restrict__" if root and roots.count(root) == 1 else kind
            for kind, root in zip(kernel.types, roots, strict=True)
        )
        return replace(kernel, types=types)

    return unit.with_kernels(change)
