"""The transform `restrict`: it tells g++ which pointers of a kernel share no memory."""

from dataclasses import replace

from agents.builtin.analysis.buffers import read_buffers
from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.compilation_unit import CompilationUnit


def restrict(unit: CompilationUnit) -> CompilationUnit:
    """Declare each pointer `__restrict__` whose buffer no other argument of the same call shares."""
    buffers = read_buffers(unit)

    def change(kernel: Kernel) -> Kernel:
        arguments = buffers.arguments.get(kernel.name, ())
        if len(arguments) != len(kernel.types):
            return kernel
        roots = [buffers.roots.get(name, "") for name in arguments]
        types = tuple(
            f"{kind} __restrict__" if root and roots.count(root) == 1 else kind
            for kind, root in zip(kernel.types, roots, strict=True)
        )
        return replace(kernel, types=types)

    return unit.with_kernels(change)
