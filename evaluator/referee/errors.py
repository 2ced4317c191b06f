"""The exception for a runner that failed, and the verdict that follows from the runner's role."""

import functools
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from .protocol.baselines import OTHERS, title_of
from .sanitize import fault

_Method = TypeVar("_Method", bound=Callable[..., Any])


class RunnerFailed(Exception):
    """A runner did not carry out a command.

    Attributes:
        kind: how it failed.
        message: one line that says what happened.
        detail: what the runner printed or raised, which is a claim of the runner.
        role: the runner's role, which its handle fills in.
        killed: whether its process was ended by SIGKILL, which no process can foresee or hold off.
        for_memory: whether that was the kernel, because the sandbox had no memory left.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        detail: str = "",
        *,
        role: str = "",
        killed: bool = False,
        for_memory: bool = False,
    ) -> None:
        super().__init__(message)
        # error, build, output, out_of_memory, timed_out, died, protocol, out_of_turn, unreadable or no_room
        self.kind = kind
        self.message = message
        self.detail = detail
        self.role = role
        self.killed = killed
        self.for_memory = for_memory


def names_role(method: _Method) -> _Method:
    """Make a method fill in its object's `role` in every RunnerFailed that it raises."""

    @functools.wraps(method)
    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except RunnerFailed as failure:
            failure.role = failure.role or self.role
            raise

    return cast("_Method", named)


def of_refusal(reply: Mapping[str, Any], log: str) -> RunnerFailed:
    """The failure that a runner reports in its answer. The runner's text is kept with a limited length."""
    kind = str(reply.get("kind", "error"))
    detail = f"{str(reply.get('trace', ''))[:4000]}\n{log}".strip()
    known = kind in ("error", "output", "out_of_memory")
    return RunnerFailed(kind if known else "protocol", str(reply.get("error", "no reason given"))[:600], detail)


def of_closed(log: str) -> RunnerFailed:
    """The failure of a runner that lives and has closed its connection."""
    return RunnerFailed("died", "the process closed its connection without ending", log)


def of_end(status: int | None, log: str, *, memory_ran_out: bool) -> RunnerFailed:
    """The failure of a runner that has ended.

    Args:
        status: that of waitpid; None if nobody can tell it any more.
        log: what the runner printed.
        memory_ran_out: whether the kernel has killed processes of the sandbox for memory since the runner was last seen
            alive. It does not tell which.
    """
    killed = status is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL)
    if killed and memory_ran_out:
        return RunnerFailed("died", _KILLED_FOR_MEMORY, log, killed=True, for_memory=True)
    if status is None:
        return RunnerFailed("died", "the process has ended without an answer", log, killed=True)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return RunnerFailed("died", f"the process ended by {name} without an answer", log, killed=killed)
    text = f"the process exited with status {os.WEXITSTATUS(status)} without an answer"
    return RunnerFailed("died", text, log)


_OF_THE_TASK = ("reference", "eager")
MORE_MEMORY = "the sandbox more memory (KERNELWRIGHT_MEMORY_MB)"
_KILLED_FOR_MEMORY = "the kernel killed the process because the sandbox had no memory left"


@dataclass
class Finding(Exception):
    """Ends an evaluation with a verdict, its code, and a message for the user."""

    verdict: str
    message: str
    code: str | None = None
    detail: str = ""


class ChampionFailed(Exception):
    """The candidate to compare with failed in its turn, which is no fault of the candidate that is judged."""


class BaselineFailed(Exception):
    """The baseline `name`, not eager, failed in its turn, which is no fault of the task's. `failure` says how."""

    def __init__(self, name: str, failure: RunnerFailed) -> None:
        super().__init__(failure.message)
        self.name = name
        self.failure = failure


def of_candidate(failure: RunnerFailed, *, building: bool, doing: str) -> Finding:
    """The verdict on a candidate whose runner failed while `doing` something.

    That it has ended, and of what, comes before all that it may seem to have done: its handle tells (`handle`).
    """
    message = f"{doing}: {failure.message}"
    if failure.kind == "no_room":
        return Finding("sandbox_error", message, "no_room", failure.detail)
    if failure.kind == "timed_out":
        return Finding("timed_out", message, None, failure.detail)
    if failure.kind == "out_of_memory" or failure.for_memory:
        return Finding("out_of_memory", message, None, failure.detail)
    if failure.kind == "output":
        # The returned value cannot be written as a tree. The place in the runner that found this out helps no user.
        return Finding("wrong_output", f"{doing}: {failure.message.removeprefix('TreeError: ')}", "type")
    if failure.kind == "protocol":
        return Finding("integrity", message, "forged_result", failure.detail)
    if failure.kind == "out_of_turn":
        return Finding("integrity", message, "ran_out_of_turn", failure.detail)
    if failure.kind == "unreadable":
        return Finding("integrity", message, "unreadable_output", failure.detail)
    if failure.kind == "build" or (building and failure.kind == "error"):
        return Finding("build_failed", message, None, failure.detail)
    return Finding("crashed", message, None, failure.detail)


def of_task(failure: RunnerFailed, *, doing: str) -> Finding:
    """The verdict on a task that cannot be run."""
    if failure.kind == "no_room":
        return Finding("sandbox_error", f"{doing}: {failure.message}", "no_room", failure.detail)
    code, message = failure.kind if failure.kind in ("timed_out", "out_of_memory") else None, failure.message
    if failure.for_memory:
        code, message = "out_of_memory", f"{message}; give it smaller shapes or {MORE_MEMORY}"
    return Finding("task_invalid", f"the reference failed in {doing}: {message}", code, failure.detail)


def of_baseline(failure: RunnerFailed, *, name: str, doing: str) -> Finding:
    """The verdict where a baseline other than eager failed and may not be left out."""
    text = f"the baseline {title_of(name)} failed in {doing}: {failure.message[:200]}"
    return Finding("sandbox_error", text, "baseline_lost", failure.detail)


def of_failure(failure: RunnerFailed) -> Finding:
    """The verdict on a failure at an unexpected place. It follows from the role of the runner."""
    doing = "what lies between calls"
    if failure.role == "candidate":
        return of_candidate(failure, building=False, doing=doing)
    if failure.role in _OF_THE_TASK:
        return of_task(failure, doing=doing)
    if failure.role in OTHERS:
        return of_baseline(failure, name=failure.role, doing=doing)
    return Finding("sandbox_error", f"a process of the referee's own failed: {failure.message}", failure.kind)


def of_fault(error: Exception) -> Finding:
    """The verdict on a failure of the referee itself. There is no evidence, so nothing passes and nothing is blamed."""
    return Finding("sandbox_error", f"the referee failed: {fault(error)}", "referee_failed")
