"""A Task: one op to optimize."""

import hashlib
from dataclasses import dataclass

LOCAL_SUITE = "local"
"""The suite of an op that a user submitted."""

REGION_SUITE = "regions"
"""The suite of the regions of whole models that users submitted: `regions/MODEL.rNN_NAME`."""


class TaskError(ValueError):
    """A task that cannot be used. Its text is one clear line: where, what is wrong, what to do."""


@dataclass(frozen=True)
class Task:
    """One op to optimize, never executed on the host.

    `source` defines `Model(torch.nn.Module)`, `get_inputs()` and `get_init_inputs()` (the KernelBench form); a plain
    function form has already been normalised to it. In place of `Model` it may bring a SOURCE_KERNEL, which is the
    reference then (`tasks.source_kernel`).
    """

    name: str
    source: str
    suite: str = LOCAL_SUITE
    category: str = "other"
    dtype: str = "float32"

    @property
    def id(self) -> str:
        """`suite/name`, as commands and the leaderboard show it."""
        return f"{self.suite}/{self.name}"

    @property
    def source_hash(self) -> str:
        """SHA-256 of the source, in hex. It identifies the op that a result belongs to."""
        return hashlib.sha256(self.source.encode()).hexdigest()
