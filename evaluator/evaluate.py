"""Evaluates a candidate by running the referee in a sandbox, and builds a candidate before its evaluation."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from evaluator.build_cache import BuildCache, baseline_key, candidate_key
from evaluator.evaluation import SCHEMA, Evaluation
from evaluator.peak_store import PeakStore
from evaluator.platforms import Platform
from evaluator.provenance import provenance
from evaluator.referee.protocol.baselines import EAGER, SOURCE_KERNEL, USUAL
from evaluator.referee.protocol.gpu_checks import ARCHITECTURES
from evaluator.referee_process import HarnessFailed, run_referee
from sandbox.base import Limits, Sandbox
from tasks.declarations import declarations_of
from tasks.outcomes import CANCELLED, Verdict, candidate_hash
from tasks.source_kernel import reference_kernel_of
from tasks.task import Task
from tasks.weights_file import Weights


@dataclass(frozen=True)
class Effort:
    """The limits of one evaluation. The protocol is the same for every effort; more time narrows the interval."""

    wall_s: float = 420.0
    memory_mb: int = 8192
    build_timeout_s: float = 120.0
    call_timeout_s: float = 20.0
    measure_budget_s: float = 20.0
    precision: float = 0.2  # the width, as a share of the speedup, at which an interval is narrow enough
    baselines: tuple[str, ...] = USUAL  # those that the platform lacks are left out
    trial: bool = False  # whether timing ends as soon as it is decided if the candidate is better than the champion
    cold: bool = False  # whether caches are scrubbed before each timed call
    shape_group: int | None = None  # the task's own inputs are those of get_input_groups()[N]; None: get_inputs()
    rules: tuple[str, ...] = ()  # other accuracy rules to report on beside ours: `kernelbench`
    architectures: tuple[str, ...] = ARCHITECTURES  # what kernels for GPUs are compiled for

    def limits(self) -> Limits:
        """The sandbox's limits."""
        return Limits(wall_s=self.wall_s, memory_mb=self.memory_mb, disk_mb=1024)

    def on(self, platform: Platform) -> "Effort":
        """The effort with the baselines that a platform has."""
        return replace(self, baselines=tuple(name for name in self.baselines if name in platform.baselines))

    def request(self, task: Task, candidate_source: str) -> dict[str, Any]:
        """The request for the referee."""
        declared = declarations_of(task.source)
        kernel = reference_kernel_of(task.source)
        return {
            "task_source": task.source,
            "source_kernel": {} if kernel is None else {"platform": kernel.platform, "source": kernel.source},
            "candidate_source": candidate_source,
            "memory_mb": self.memory_mb,
            "build_timeout_s": self.build_timeout_s,
            "call_timeout_s": self.call_timeout_s,
            "measure_budget_s": self.measure_budget_s,
            "precision": self.precision,
            "wall_s": self.wall_s,
            "baselines": list(self.baselines),
            "tolerance": dict(declared.tolerance),
            "domain": list(declared.domain),
            "shape_groups": declared.shape_groups,
            "shape_group": self.shape_group,
            "cold": self.cold,
            "trial": self.trial,
            "rules": list(self.rules),
            "architectures": list(self.architectures),
        }


def evaluate(
    task: Task,
    candidate_source: str,
    *,
    sandbox: Sandbox,
    platform: Platform,
    device: int = 0,
    effort: Effort | None = None,
    champion_source: str | None = None,
    weights: Weights | None = None,
    cache: BuildCache | None = None,
    peaks: PeakStore | None = None,
    on_progress: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
) -> Evaluation:
    """Evaluate a candidate on a device of this host.

    A candidate that fails, hangs or cheats gets a verdict and raises no exception. A referee that gave no result is a
    verdict, too (`sandbox_error`).

    Args:
        task: the op.
        candidate_source: the candidate.
        sandbox: where it runs.
        platform: whose device it runs on.
        device: the device's index.
        effort: the limits; None: the default ones.
        champion_source: another candidate that is timed beside this one, so that it is known which is better.
        weights: those of the op, on which outputs are judged as well.
        cache: what earlier evaluations have built.
        peaks: what earlier evaluations have seen the device do at best.
        on_progress: called with a few words on each stage.
        cancel: ends the evaluation.

    Raises:
        SandboxUnavailable: there is no sandbox to run it in.
    """
    effort = (effort or Effort()).on(platform)
    start = time.perf_counter()
    described = sandbox.describe()
    probed = platform.device(device)
    own_key = candidate_key(task, candidate_source, described, probed)
    keys = {
        name: baseline_key(name, task, described, probed, shape_group=effort.shape_group)
        for name in (*effort.baselines, SOURCE_KERNEL)
        if name != EAGER
    }
    champion = champion_source or ""
    describe = partial(
        provenance,
        task,
        candidate_source,
        described=described,
        device=probed,
        facts=platform.provenance(device),
        effort=effort,
        weights=weights,
    )
    built_before = cache.get(candidate_key(task, champion, described, probed)) if cache and champion else ""
    kept = {name: found for name, key in keys.items() if cache is not None and (found := cache.get(key))}
    built = "" if cache is None else cache.get(own_key)
    try:
        result = run_referee(
            "evaluate",
            platform,
            {
                **effort.request(task, candidate_source),
                "baseline_caches": kept,
                "build_cache": built,
                "champion_source": champion,
                "champion_cache": built_before,
                "peaks": {} if peaks is None else peaks.get(probed, described),
                "weights": None if weights is None else [row.to_json() for row in weights.rows],
            },
            device=device,
            sandbox=sandbox,
            limits=effort.limits(),
            elements=b"" if weights is None else weights.elements,
            on_progress=on_progress,
            cancel=cancel,
        )
    except HarnessFailed as failure:
        return _without_result(failure, describe(result={}), start)
    if cache is not None:
        returned = result.get("baseline_caches") or {}
        for key, fresh, old in (
            (own_key, result.get("build_cache"), built),
            *((key, returned.get(name), kept.get(name)) for name, key in keys.items()),
        ):
            if isinstance(fresh, str) and fresh != old:
                cache.put(key, fresh)
    if peaks is not None and result.get("peaks"):
        peaks.add(probed, described, result["peaks"])
    total = time.perf_counter() - start
    stages = result["cost_s"]
    return Evaluation.from_json(
        {
            **{name: result[name] for name in _FROM_REFEREE},
            "schema": SCHEMA,
            "champion": result["champion"] and {"candidate": candidate_hash(champion), **result["champion"]},
            "provenance": describe(result=result),
            "cost_s": {"start": round(total - sum(stages.values()), 3), **stages, "total": round(total, 3)},
        }
    )


_FROM_REFEREE = (
    "verdict", "code", "message", "detail", "tags", "correctness", "speedup", "latency_ms", "roofline", "profile",
)  # fmt: skip


def _without_result(failure: HarnessFailed, provenance: dict[str, Any], start: float) -> Evaluation:
    completed = failure.completed
    verdict = Verdict.SANDBOX_ERROR
    if completed.timed_out:
        verdict = Verdict.TIMED_OUT
    elif completed.out_of_memory:
        verdict = Verdict.OUT_OF_MEMORY
    return Evaluation(
        verdict=verdict,
        message=failure.message,
        code=CANCELLED if completed.cancelled else None,
        detail=completed.stderr[-4000:].decode("utf-8", "replace"),
        provenance=provenance,
        cost_s={"total": round(time.perf_counter() - start, 3)},
    )


def build_ahead(
    task: Task,
    candidate_source: str,
    *,
    sandbox: Sandbox,
    platform: Platform,
    device: int = 0,
    effort: Effort,
    cache: BuildCache,
    cancel: threading.Event | None = None,
) -> bool:
    """Build a candidate before its evaluation. The candidate sees no inputs.

    A candidate that cannot be built is reported by its evaluation.

    Returns:
        Whether the evaluation will find the candidate built in `cache`.

    Raises:
        SandboxUnavailable: there is no sandbox to run it in.
    """
    key = candidate_key(task, candidate_source, sandbox.describe(), platform.device(device))
    if cache.get(key):
        return True
    request = {**effort.request(task, candidate_source), "baselines": []}
    try:
        result = run_referee(
            "build", platform, request, device=device, sandbox=sandbox, limits=effort.limits(), cancel=cancel
        )
    except HarnessFailed:
        return False
    packed = str(result.get("build_cache", ""))
    cache.put(key, packed)
    return bool(packed)
