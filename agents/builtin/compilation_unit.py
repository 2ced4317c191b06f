"""The compilation unit that transforms work on: the parsed kernels of a candidate, and the flags for g++."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from agents.builtin.analysis.inductor_module import Kernel, Module
from agents.builtin.candidate_file import DEFAULT_FLAGS
from agents.builtin.generated import Generated


@dataclass(frozen=True)
class CompilationUnit:
    """The kernels of a candidate before its file is written.

    Attributes:
        generated: what TorchInductor generated.
        module: the parsed module.
        flags: for g++.
    """

    generated: Generated
    module: Module
    flags: tuple[str, ...] = DEFAULT_FLAGS

    def with_kernels(self, change: Callable[[Kernel], Kernel]) -> "CompilationUnit":
        """This unit with each kernel changed."""
        kernels = tuple(change(kernel) for kernel in self.module.kernels)
        return replace(self, module=replace(self.module, kernels=kernels))

    def with_flags(self, *flags: str, without: tuple[str, ...] = ()) -> "CompilationUnit":
        """This unit with `flags` added and those in `without` removed."""
        kept = tuple(flag for flag in self.flags if flag not in without)
        return replace(self, flags=kept + flags)


Transform = Callable[[CompilationUnit], CompilationUnit]
