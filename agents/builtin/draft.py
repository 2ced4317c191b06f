"""What a variation works on: the parsed module with the flags and notes that its candidate will have."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from agents.builtin.analysis.inductor_module import Kernel, Module
from agents.builtin.candidate_file import DEFAULT_FLAGS
from agents.builtin.generated import Generated


@dataclass(frozen=True)
class Draft:
    """A candidate before it is written out; `flags` are g++'s."""

    generated: Generated
    module: Module
    flags: tuple[str, ...] = DEFAULT_FLAGS

    def with_kernels(self, change: Callable[[Kernel], Kernel]) -> "Draft":
        """This draft with each kernel changed."""
        kernels = tuple(change(kernel) for kernel in self.module.kernels)
        return replace(self, module=replace(self.module, kernels=kernels))

    def with_flags(self, *flags: str, without: tuple[str, ...] = ()) -> "Draft":
        """This draft with other flags for g++."""
        kept = tuple(flag for flag in self.flags if flag not in without)
        return replace(self, flags=kept + flags)


Transform = Callable[[Draft], Draft]
