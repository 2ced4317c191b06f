"""Runs a program of NVIDIA's in the runner's own folder, for a limited time, and reads a limited part of what it says.

Nsight Compute and compute-sanitizer start the program that they watch: `watched_call`.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .....protocol.gpu_checks import TOOL_PLACES

LOG_BYTES = 512 * 1024
"""The most that is read of what a program says: as JSON it fits into a message, whatever its characters are."""

_ERROR_BYTES = 2000
_LIST_BYTES = 8 * 1024 * 1024  # of a list of which few lines are kept
_MOST_LINES = 400
_GONE_S = 5.0


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        status: as `subprocess` has it; None: it was killed because its time was over.
        log: what it said; at most `LOG_BYTES`.
        cut: whether it said more.
        errors: the end of what it and the program under it wrote to standard error.
    """

    status: int | None
    log: str
    cut: bool
    errors: str


def find(name: str, root: Path = Path("/")) -> str | None:
    """The path of a program: on PATH, or where NVIDIA's installers put it below `root`; None where it is not."""
    if (path := shutil.which(name)) is not None:
        return path
    folders = [folder for place in TOOL_PLACES for folder in sorted(root.glob(place), reverse=True)]
    return shutil.which(name, path=os.pathsep.join(map(str, folders))) if folders else None


def run(
    words: Sequence[str], folder: Path, *, log: str = "", environment: Mapping[str, str] | None = None, timeout_s: float
) -> Ended:
    """Run a program to its end, or until its time is over; then it is killed with its process group.

    Args:
        words: the program and its arguments.
        folder: where files of the run are put.
        log: the name of the file in `folder` that the program writes what it says to; empty: standard output is read.
        environment: variables beside this process's own.
        timeout_s: the most that it may take.

    Raises:
        OSError: it cannot be started.
    """
    said, errors = folder / (log or "said"), folder / "errors"
    for path in (said, errors):
        path.unlink(missing_ok=True)
    with contextlib.ExitStack() as files:
        out = subprocess.DEVNULL if log else files.enter_context(said.open("wb"))
        process = subprocess.Popen(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=files.enter_context(errors.open("wb")),
            cwd=folder,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        status: int | None = None
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GONE_S)
    text, cut = _beginning(said, LOG_BYTES)
    return Ended(status, text, cut, _end(errors))


def lines_of(folder: Path, kept: Sequence[str]) -> tuple[list[str], int]:
    """Of what the last program said: the lines that begin with one of these words, and how many lines there are."""
    lines = _beginning(folder / "said", _LIST_BYTES)[0].splitlines()
    found = [line[:200] for line in lines if line.lstrip(' "').startswith(tuple(kept))]
    return found[:_MOST_LINES], len(lines)


def _beginning(path: Path, most: int) -> tuple[str, bool]:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError:
        return "", False
    return data[:most].decode("utf-8", "replace"), len(data) > most


def _end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _ERROR_BYTES))
            return file.read(_ERROR_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
