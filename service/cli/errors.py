"""The exit status and the line of text for each kind of error."""

import os
import traceback
from dataclasses import dataclass

from agents.protocols import LLMError, ModelUnavailable
from db.errors import NotInStore, StoreError
from sandbox.base import SandboxUnavailable
from service.errors import BadRequest, JobLost, Unavailable
from tasks.task import TaskError


@dataclass(frozen=True)
class Failure:
    """A failed command: its exit status, a word for scripts, and one line for people."""

    status: int
    kind: str
    message: str


def failure_of(error: Exception) -> Failure:
    """The failure for an error.

    Its status is 2 if the user can correct the command or the op, 3 if the machine lacks something, and 1 for a fault
    of Kernelwright itself.
    """
    if isinstance(error, TaskError):
        return Failure(2, "invalid_op", _line(error))
    if isinstance(error, BadRequest | NotInStore):
        return Failure(2, "bad_request", _line(error))
    if isinstance(error, SandboxUnavailable):
        return Failure(3, "no_sandbox", _line(error))
    if isinstance(error, ModelUnavailable | LLMError):
        return Failure(3, "no_model", _line(error))
    if isinstance(error, StoreError):
        return Failure(3, "no_store", _line(error))
    if isinstance(error, JobLost):
        return Failure(3, "job_lost", _line(error))
    if isinstance(error, Unavailable):
        return Failure(3, "unavailable", _line(error))
    return Failure(1, "internal", f"{_unexpected(error)} Run it again with --debug and report what it prints.")


def _unexpected(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""  # noqa: PTH119
    return f"unexpected {type(error).__name__}{place}: {_line(error)[:300]}."


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return "".join(char if char.isprintable() else "?" for char in text) or type(error).__name__
