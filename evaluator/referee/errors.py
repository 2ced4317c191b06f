"""How a runner fails, whoever it is: one exception, which names the runner's role."""

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from .sanitize import fault

_Method = TypeVar("_Method", bound=Callable[..., Any])


class RunnerFailed(Exception):
    """A runner did not do what it was told: `kind` says how, `detail` carries what it printed or raised (claims).

    `role` is that of the runner; its handle fills it in.
    """

    def __init__(self, kind: str, message: str, detail: str = "", *, role: str = "") -> None:
        super().__init__(message)
        self.kind = kind  # error, output, out_of_memory, timed_out, died, protocol, out_of_turn, unreadable, no_room
        self.message = message
        self.detail = detail
        self.role = role


def names_role(method: _Method) -> _Method:
    """A method of something with a `role`, whose RunnerFailed shall name it."""

    @functools.wraps(method)
    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except RunnerFailed as failure:
            failure.role = failure.role or self.role
            raise

    return cast("_Method", named)


def of_refusal(reply: Mapping[str, Any], log: str) -> RunnerFailed:
    """What a runner's answer says that tells of a failure: its own words, bounded."""
    kind = str(reply.get("kind", "error"))
    detail = f"{str(reply.get('trace', ''))[:4000]}\n{log}".strip()
    known = kind in ("error", "output", "out_of_memory")
    return RunnerFailed(kind if known else "protocol", str(reply.get("error", "no reason given"))[:600], detail)


def of_end(status: int | None, log: str) -> RunnerFailed:
    """What a runner's end says: `status` as waitpid gives it, None if it lives and has only closed its connection."""
    if status is None:
        return RunnerFailed("protocol", "the runner closed its connection without ending", log)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return RunnerFailed("died", f"the process ended by {name} without an answer", log)
    return RunnerFailed("died", f"the process exited with status {os.WEXITSTATUS(status)} without an answer", log)


_OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")

_ENDED = ("died", "out_of_turn")  # who is killed while it is stopped goes on to its end
_OF_THE_TASK = ("reference", "eager", "compile")
MORE_MEMORY = "the sandbox more memory (KERNELWRIGHT_MEMORY_MB)"
_KILLED_FOR_MEMORY = "the kernel killed the process because the sandbox had no memory left"


@dataclass
class Finding(Exception):
    """The end of a trial: a verdict with its code and what to tell the user."""

    verdict: str
    message: str
    code: str | None = None
    detail: str = ""


def of_candidate(failure: RunnerFailed, *, building: bool, doing: str) -> Finding:
    """The verdict on a candidate whose runner failed while `doing` something."""
    message = f"{doing}: {failure.message}"
    if failure.kind == "timed_out":
        return Finding("timed_out", message, None, failure.detail)
    if failure.kind == "out_of_memory":
        return Finding("out_of_memory", message, None, failure.detail)
    if failure.kind in _ENDED and oom_kills() > 0:
        return Finding("out_of_memory", f"{doing}: {_KILLED_FOR_MEMORY}", None, failure.detail)
    if failure.kind == "output":
        # What it returned cannot be named to the referee: where in the runner that was found out helps nobody.
        return Finding("wrong_output", f"{doing}: {failure.message.removeprefix('TreeError: ')}", "type")
    if failure.kind == "protocol":
        return Finding("integrity", message, "forged_result", failure.detail)
    if failure.kind == "out_of_turn":
        return Finding("integrity", message, "ran_out_of_turn", failure.detail)
    if failure.kind == "unreadable":
        return Finding("integrity", message, "unreadable_output", failure.detail)
    if building and failure.kind == "error":
        return Finding("build_failed", message, None, failure.detail)
    return Finding("crashed", message, None, failure.detail)


def of_task(failure: RunnerFailed, *, doing: str) -> Finding:
    """The verdict where the task itself cannot be run."""
    if failure.kind == "no_room":
        return Finding("sandbox_error", f"{doing}: {failure.message}", "no_room", failure.detail)
    code, message = failure.kind if failure.kind in ("timed_out", "out_of_memory") else None, failure.message
    if failure.kind in _ENDED and oom_kills() > 0:
        code, message = "out_of_memory", f"{_KILLED_FOR_MEMORY}; give it smaller shapes or {MORE_MEMORY}"
    return Finding("task_invalid", f"the reference failed in {doing}: {message}", code, failure.detail)


def of_failure(failure: RunnerFailed) -> Finding:
    """The verdict on a failure that nobody expected where it happened: by whose runner it was."""
    doing = "what lies between calls"
    if failure.role == "candidate":
        return of_candidate(failure, building=False, doing=doing)
    if failure.role in _OF_THE_TASK:
        return of_task(failure, doing=doing)
    return Finding("sandbox_error", f"a process of the referee's own failed: {failure.message}", failure.kind)


def of_fault(error: Exception) -> Finding:
    """The verdict where the referee itself has failed: it has no evidence, so nothing passes, and accuses nobody."""
    return Finding("sandbox_error", f"the referee failed: {fault(error)}", "referee_failed")


def oom_kills() -> int:
    """How often the kernel has killed for memory in this container (0 where that cannot be told)."""
    for name in _OOM_COUNTERS:
        with contextlib.suppress(OSError, ValueError):
            for line in Path(name).read_text().splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
    return 0
