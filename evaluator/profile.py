"""The detailed profile of a candidate: where its time goes, and what the compiler made of its loops.

It is made after an evaluation has passed, in a sandbox of its own. It is advice: no verdict depends on it, and an
evaluation without it is complete.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from evaluator.evaluate import Effort
from evaluator.evaluation import Evaluation
from evaluator.platforms import Platform
from evaluator.referee_process import HarnessFailed, harness_hash, run_referee
from sandbox.base import Limits, Sandbox
from tasks.outcomes import candidate_hash
from tasks.task import Task

SCHEMA = "kernelwright.profile/2"
BUDGET_S = 60.0
_GRACE_S = 60.0  # for starting the sandbox, and for a step that is under way when the budget is spent


def profile_candidate(
    task: Task,
    candidate_source: str,
    *,
    sandbox: Sandbox,
    platform: Platform,
    device: int = 0,
    effort: Effort | None = None,
    budget_s: float = BUDGET_S,
    on_progress: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
) -> dict[str, Any]:
    """Profile a candidate.

    Args:
        task: The op; it makes the inputs of the calls.
        candidate_source: The candidate's file.
        sandbox: Where both run.
        platform: What it runs on.
        device: Which one of the platform's devices.
        effort: Limits of memory and of single steps.
        budget_s: Seconds for the profile, without the sandbox's start.
        on_progress: Receives a line for each step.
        cancel: Ends it when set.

    Returns:
        JSON values with the candidate's hash. A part that could not be measured is named under `absent` with the
        reason; where there is no profile at all, that is `absent["profile"]`.

    Raises:
        SandboxUnavailable: there is no sandbox to run it in.
    """
    effort = effort or Effort()
    request = {**effort.request(task, candidate_source), "measure_budget_s": budget_s, "baselines": []}
    limits = Limits(wall_s=budget_s + _GRACE_S, memory_mb=effort.memory_mb, disk_mb=1024)
    bound = {
        "schema": SCHEMA,
        "candidate": candidate_hash(candidate_source),
        "task": task.source_hash,
        "harness": harness_hash(),
    }
    try:
        result = run_referee(
            "profile",
            platform,
            request,
            device=device,
            sandbox=sandbox,
            limits=limits,
            on_progress=on_progress,
            cancel=cancel,
        )
    except HarnessFailed as failure:
        cost_s = {"total": round(failure.completed.wall_s, 3)}
        return {**bound, "absent": {"profile": failure.message[:300]}, "cost_s": cost_s}
    return {**result, **bound}


def with_detail(
    evaluation: Evaluation,
    task: Task,
    candidate_source: str,
    *,
    sandbox: Sandbox,
    platform: Platform,
    device: int = 0,
    effort: Effort | None = None,
    on_progress: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
) -> Evaluation:
    """Add the detailed profile to an evaluation that passed, as `profile.detail`, and its time to `cost_s`.

    Any other evaluation is returned unchanged.

    Raises:
        SandboxUnavailable: there is no sandbox to run it in.
    """
    if not evaluation.passed:
        return evaluation
    start = time.perf_counter()
    detail = profile_candidate(
        task,
        candidate_source,
        sandbox=sandbox,
        platform=platform,
        device=device,
        effort=effort,
        on_progress=on_progress,
        cancel=cancel,
    )
    took_s = round(time.perf_counter() - start, 3)
    total_s = round(evaluation.cost_s.get("total", 0.0) + took_s, 3)
    return replace(
        evaluation,
        profile={**evaluation.profile, "detail": detail},
        cost_s={**evaluation.cost_s, "profile": took_s, "total": total_s},
    )
