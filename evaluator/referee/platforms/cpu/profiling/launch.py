"""Starting a profiled runner, and reading the files that its processes wrote."""

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....isolation.calls import InputSet
from ....isolation.handle import RunnerHandle
from ....pool.runner_pool import RunnerPool
from ....protocol import framing
from . import compiler_remarks

_MAX_FILES = 400


@dataclass(frozen=True)
class ProfiledRunner:
    """A candidate runner that compiles through the shims.

    Attributes:
        handle: The runner.
        folder: The folder in its home in which the shims write the compiler's remarks.
        left_s: Returns the seconds that are left for the profile; no answer may take longer.
    """

    handle: RunnerHandle
    folder: Path
    left_s: Callable[[], float]

    def ask(self, what: str, **details: Any) -> framing.Message:
        """Ask the profiler inside the runner a question.

        Raises:
            RunnerFailed: the runner died, failed, broke the protocol or took too long.
        """
        return self.handle.ask({"op": "profile", "what": what, **details}, timeout_s=self.left_s())

    def give_arguments(self, inputs: InputSet) -> None:
        """Add a set of inputs to those that the runner uses for its calls in turn.

        Raises:
            RunnerFailed: as `ask`.
        """
        message = {"op": "profile", "what": "arguments"}
        self.handle.give(message, inputs.tree, inputs.contents, timeout_s=self.left_s())


def start(pool: RunnerPool, left_s: Callable[[], float]) -> ProfiledRunner:
    """Start a candidate runner and put the compiler shims on its PATH; no foreign code is loaded yet.

    Raises:
        RunnerFailed: it cannot be started or prepared.
    """
    handle = pool.start("candidate", pool.request.candidate_source)
    runner = ProfiledRunner(handle, Path(handle.home) / "profile", left_s)
    compilers = {name: path for name in compiler_remarks.COMPILERS if (path := shutil.which(name)) is not None}
    shims = {name: compiler_remarks.shim(path, runner.folder) for name, path in compilers.items()}
    runner.ask("prepare", folder=str(runner.folder), shims=shims, compiler=compilers.get("g++", "g++"))
    return runner


def read_claimed(path: Path, limit_bytes: int) -> str:
    """Read the text of a plain file that the candidate's processes may have written, changed or replaced.

    Raises:
        OSError: it is not a plain file, or it cannot be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as stream:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"{path.name} is no plain file")
        return stream.read(limit_bytes).decode("utf-8", "replace")


def files(folder: Path, prefix: str) -> list[Path]:
    """List the files of a folder whose names start with `prefix`: at most 400, in order of name."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for _, entry in zip(range(10 * _MAX_FILES), entries, strict=False)]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if name.startswith(prefix)][:_MAX_FILES]
