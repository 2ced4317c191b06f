"""A detailed profile of one candidate: where its time goes, what the compiler made of its loops, what it touches.

Made after an evaluation has passed, in a sandbox of its own. No part of it is evidence, and none of it is needed.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from evaluator.evaluate import Effort
from evaluator.evaluation import Evaluation
from evaluator.referee_process import HarnessFailed, harness_hash, run_referee
from sandbox.base import Limits, Sandbox
from tasks.outcomes import candidate_hash
from tasks.task import Task

SCHEMA = "kernelwright.profile/2"
BUDGET_S = 60.0
_GRACE_S = 60.0  # for starting, and for what is under way when the budget is spent


def profile_candidate(
    task: Task,
    candidate_source: str,
    *,
    sandbox: Sandbox,
    effort: Effort | None = None,
    budget_s: float = BUDGET_S,
    on_progress: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
) -> dict[str, Any]:
    """Profile a candidate for about `budget_s` seconds; plain JSON values, bound to the candidate by its hash.

    What cannot be measured is named under `absent` with the reason; if nothing can, that is `absent["profile"]`.

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
        result = run_referee("profile", request, sandbox=sandbox, limits=limits, on_progress=on_progress, cancel=cancel)
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
    effort: Effort | None = None,
    on_progress: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
) -> Evaluation:
    """A passed evaluation with the detailed profile under `profile.detail`, its time in `cost_s`; any other as it is.

    Raises:
        SandboxUnavailable: there is no sandbox to run it in.
    """
    if not evaluation.passed:
        return evaluation
    start = time.perf_counter()
    detail = profile_candidate(
        task, candidate_source, sandbox=sandbox, effort=effort, on_progress=on_progress, cancel=cancel
    )
    took_s = round(time.perf_counter() - start, 3)
    total_s = round(evaluation.cost_s.get("total", 0.0) + took_s, 3)
    return replace(
        evaluation,
        profile={**evaluation.profile, "detail": detail},
        cost_s={**evaluation.cost_s, "profile": took_s, "total": total_s},
    )


def detail_of(profile: Mapping[str, Any], candidate_source: str) -> dict[str, Any] | None:
    """The detailed profile in an evaluation's `profile`; None where there is none.

    Raises:
        ValueError: it is of another candidate or of another schema.
    """
    detail = profile.get("detail")
    if detail is None:
        return None
    check_profile(detail, candidate_source)
    return dict(detail)


def check_profile(detail: Mapping[str, Any], candidate_source: str) -> None:
    """Refuse a profile of something else.

    Raises:
        ValueError: it is of another candidate or of another schema.
    """
    if detail.get("schema") != SCHEMA:
        raise ValueError(f"schema: expected {SCHEMA!r}, got {detail.get('schema')!r}")
    wanted = candidate_hash(candidate_source)
    if detail.get("candidate") != wanted:
        raise ValueError(f"candidate: the profile is of {str(detail.get('candidate'))[:12]}…, not of {wanted[:12]}…")
