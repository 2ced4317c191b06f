"""The task check: run an op in a sandbox and find out whether it can be judged, before a job spends time on it."""

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from evaluator.evaluate import Effort
from evaluator.platforms import Platform
from evaluator.referee_process import HarnessFailed, run_referee
from sandbox.base import Sandbox
from tasks.outcomes import Verdict
from tasks.task import Task

CHECK_EFFORT = Effort(wall_s=180.0)


@dataclass(frozen=True)
class Problem:
    """Something that makes a task unusable."""

    code: str
    message: str
    detail: str = ""


@dataclass(frozen=True)
class TaskCheck:
    """The result of a task check. A problem makes the task unusable; a warning says that a pass is weak evidence."""

    task: str
    ok: bool
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    eager_ms: float | None = None
    memory_mb: int | None = None  # that its process had in memory at most, once its inputs were made
    need_mb: int | None = None  # that an evaluation takes
    cost_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"schema": "kernelwright.task_check/1", **asdict(self)}


def check_task(
    task: Task,
    *,
    sandbox: Sandbox,
    platform: Platform,
    device: int = 0,
    effort: Effort | None = None,
    on_progress: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
) -> TaskCheck:
    """Run a task's own code in a sandbox.

    The check finds outputs that are random, constant, all zero or independent of an input. It also measures the time
    and the memory that the op takes.

    Raises:
        SandboxUnavailable: there is no sandbox to run it in.
    """
    effort = (effort or CHECK_EFFORT).on(platform)
    try:
        result = run_referee(
            "check",
            platform,
            effort.request(task, ""),
            device=device,
            sandbox=sandbox,
            limits=effort.limits(),
            on_progress=on_progress,
            cancel=cancel,
        )
    except HarnessFailed as failure:
        completed = failure.completed
        code = Verdict.OUT_OF_MEMORY if completed.out_of_memory else Verdict.SANDBOX_ERROR
        code = Verdict.TIMED_OUT if completed.timed_out else code
        return TaskCheck(task.id, False, (Problem(code.value, failure.message),), cost_s=round(completed.wall_s, 3))
    return TaskCheck(
        task=task.id,
        ok=bool(result["ok"]),
        problems=tuple(Problem(**problem) for problem in result["problems"]),
        warnings=tuple(result["warnings"]),
        inputs=tuple(result.get("inputs", ())),
        outputs=tuple(result.get("outputs", ())),
        parameters=tuple(result.get("parameters", ())),
        eager_ms=result.get("eager_ms"),
        memory_mb=result.get("memory_mb"),
        need_mb=result.get("need_mb"),
        cost_s=result["cost_s"]["total"],
    )
