"""From what happened to a runner to a verdict with its code."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from .failures import RunnerFailed
from .plain import fault

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
