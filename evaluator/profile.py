"""The detailed profile of a candidate: where its time goes, and what compilers made of its loops or kernels.

It is made after an evaluation has passed, in a sandbox of its own. It is advice: no verdict depends on it, and an
evaluation without it is complete.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from evaluator.build_cache import BuildCache, candidate_key
from evaluator.evaluate import Effort
from evaluator.evaluation import Evaluation
from evaluator.platforms import Platform
from evaluator.referee_process import HarnessFailed, harness_hash, run_referee
from sandbox.base import Limits, Sandbox
from tasks.outcomes import candidate_hash
from tasks.task import Task

SCHEMA = "kernelwright.profile/2"
BUDGET_S = 60.0
GPU_BUDGET_S = 180.0  # on a GPU: Nsight Compute starts the candidate again, in a process that imports torch
SANITIZER_BUDGET_S = 480.0  # beside that, for four tools that do so
SANITIZES_ON = "compute-sanitizer watches kernels on an NVIDIA GPU: on platforms cuda and triton where one is there"
_GRACE_S = 60.0  # for starting the sandbox, and for a step that is under way when the budget is spent


def runs_on_gpu(platform: Platform) -> bool:
    """Whether candidates of the platform run on a GPU of this host, where NVIDIA's tools can watch them."""
    return platform.part != platform.name


def profile_candidate(
    task: Task,
    candidate_source: str,
    *,
    sandbox: Sandbox,
    platform: Platform,
    device: int = 0,
    effort: Effort | None = None,
    cache: BuildCache | None = None,
    budget_s: float | None = None,
    sanitize: bool = False,
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
        cache: What the evaluation has built; on a GPU it is not built again.
        budget_s: Seconds for the profile, without the sandbox's start. None: as long as it takes there.
        sanitize: Whether compute-sanitizer watches a call as well. Where nothing runs on a GPU it is absent.
        on_progress: Receives a line for each step.
        cancel: Ends it when set.

    Returns:
        JSON values with the candidate's hash. A part that could not be measured is named under `absent` with the
        reason; where there is no profile at all, that is `absent["profile"]`.

    Raises:
        SandboxUnavailable: there is no sandbox to run it in.
    """
    effort = effort or Effort()
    on_gpu = runs_on_gpu(platform)
    if budget_s is None:
        budget_s = (GPU_BUDGET_S + SANITIZER_BUDGET_S * sanitize) if on_gpu else BUDGET_S
    request = {**effort.request(task, candidate_source), "measure_budget_s": budget_s, "baselines": []}
    if on_gpu and cache is not None:
        key = candidate_key(task, candidate_source, sandbox.describe(), platform.device(device))
        request |= {"build_cache": cache.get(key)}
    request |= {"sanitize": True} if sanitize and on_gpu else {}
    grace_s = _GRACE_S + (effort.build_timeout_s if on_gpu else 0.0)
    limits = Limits(wall_s=budget_s + grace_s, memory_mb=effort.memory_mb, disk_mb=2048 if on_gpu else 1024)
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
    if sanitize and not on_gpu:
        result = {**result, "absent": {**result.get("absent", {}), "sanitizer": SANITIZES_ON}}
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
    cache: BuildCache | None = None,
    sanitize: bool = False,
    on_progress: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
) -> Evaluation:
    """Add the detailed profile to an evaluation that passed, as `profile.detail`, and its time to `cost_s`.

    Any other evaluation is returned unchanged. The arguments are those of `profile_candidate`.

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
        cache=cache,
        sanitize=sanitize,
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
