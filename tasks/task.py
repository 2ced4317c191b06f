"""A Task: one PyTorch op to optimize."""

import hashlib
from dataclasses import dataclass


class TaskError(ValueError):
    """A task that cannot be used. Its text is one clear line: where, what is wrong, what to do."""


@dataclass(frozen=True)
class Task:
    """One op to optimize, in the KernelBench form, never executed on the host.

    `source` defines `Model(torch.nn.Module)`, `get_inputs()` and `get_init_inputs()`; a plain function form has
    already been normalised to it. `suite` is `"local"` for an op that a user submitted.
    """

    name: str
    source: str
    suite: str = "local"
    category: str = "other"
    dtype: str = "float32"

    @property
    def id(self) -> str:
        """`suite/name`, as commands and the leaderboard show it."""
        return f"{self.suite}/{self.name}"

    @property
    def source_hash(self) -> str:
        """SHA-256 of the source, in hex: what pins a result to exactly this op."""
        return hashlib.sha256(self.source.encode()).hexdigest()
