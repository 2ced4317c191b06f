"""Evaluations as the agents and the store need them, and saving of tasks and evaluations."""

import uuid
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from agents.protocols import JSON, Outcome
from db.evaluations import results, tasks
from db.records import Measurements
from evaluator.evaluation import Comparison, Evaluation, Interval, noise_of
from evaluator.platforms import Platform
from service.evaluation_context import EvaluationContext
from tasks.outcomes import candidate_hash
from tasks.task import Task

MAX_METRICS = 120
_DEPTH = 4
_ROWS = 8
_NO_FIGURES = frozenset({"samples_ms", "absent", "cost_s"})
_SHARES_OF = {"time_by_file": "processor_time", "torch_operators_claimed": "operators"}
"""Shares that the referee takes while it times, and the part of the detailed profile that has them by another way."""


def measurements_of(evaluation: Evaluation) -> Measurements:
    """The figures that queries need."""
    over_eager = _interval(evaluation, "eager")
    over_compile = _interval(evaluation, "compile")
    medians = _medians(evaluation)
    return Measurements(
        speedup=None if over_eager is None else over_eager.value,
        speedup_low=None if over_eager is None else over_eager.low,
        speedup_high=None if over_eager is None else over_eager.high,
        speedup_compile=None if over_compile is None else over_compile.value,
        speedup_compile_low=None if over_compile is None else over_compile.low,
        speedup_compile_high=None if over_compile is None else over_compile.high,
        candidate_ms=medians.get("candidate"),
        eager_ms=medians.get("eager"),
        compile_ms=medians.get("compile"),
        roofline_fraction=None if evaluation.roofline is None else evaluation.roofline.fraction,
        **_over_best(evaluation),
    )


def _over_best(evaluation: Evaluation) -> dict[str, Any]:
    """The speedup over the fastest baseline: the least of all."""
    speedup = evaluation.speedup or {}
    if not speedup:
        return {}
    name = min(speedup, key=lambda each: speedup[each].value)
    found = speedup[name]
    return {
        "speedup_best": found.value,
        "speedup_best_low": found.low,
        "speedup_best_high": found.high,
        "best_baseline": name,
    }


def outcome_of(evaluation: Evaluation, platform: Platform, *, candidate_hash: str, evaluation_id: str) -> Outcome:
    """The evaluation as the agents get it."""
    measurements = measurements_of(evaluation)
    return Outcome(
        candidate_hash=candidate_hash,
        verdict=evaluation.verdict.value,
        code=evaluation.code,
        message=evaluation.message,
        detail=evaluation.detail,
        tags=evaluation.tags,
        speedup=measurements.speedup,
        speedup_low=measurements.speedup_low,
        speedup_high=measurements.speedup_high,
        speedup_compile=measurements.speedup_compile,
        latency_ms=_medians(evaluation),
        roofline_fraction=measurements.roofline_fraction,
        roofline_bound=None if evaluation.roofline is None else evaluation.roofline.bound,
        accuracy=accuracy_of(evaluation),
        profile_text=platform.profile_text(dict(evaluation.profile)),
        metrics=metrics_of(evaluation),
        took_s=evaluation.cost_s.get("total", 0.0),
        evaluation_id=evaluation_id,
        **comparison_fields(evaluation.champion),
    )


def comparison_fields(found: Comparison | None) -> dict[str, Any]:
    """What was found beside the best candidate so far, as fields of an `Outcome`."""
    if found is None or found.speedup is None:
        return {}
    return {
        "champion_hash": found.candidate,
        "over_champion": found.speedup.value,
        "over_champion_low": found.speedup.low,
        "over_champion_high": found.speedup.high,
        "decision": found.decision,
    }


def accuracy_of(evaluation: Evaluation) -> dict[str, str]:
    """Of each input family that was checked, the allowed and the found error: how much exactness may be traded."""
    return {
        check.inputs: f"{check.allowed_error:.2g} allowed, {check.max_error:.2g} used"
        for check in evaluation.correctness.checks
        if check.allowed_error is not None and check.max_error is not None
    }


def metrics_of(evaluation: Evaluation) -> dict[str, JSON]:
    """The figures that a Judge may cite, by dotted name; empty unless the candidate was measured.

    Names from the candidate's process (operators, files) have been checked by the referee. Where the detailed profile,
    which is shown beside them, has shares of its own, these are left out: two ways to measure do not agree. What the
    detailed profile repeats stands once.
    """
    if not evaluation.latency_ms:
        return {}
    found: dict[str, JSON] = {f"latency_ms.{name}": value for name, value in _medians(evaluation).items()}
    found |= {f"speedup.{name}": interval.value for name, interval in (evaluation.speedup or {}).items()}
    if evaluation.roofline is not None:
        found |= {f"roofline.{name}": value for name, value in asdict(evaluation.roofline).items()}
    detail = evaluation.profile.get("detail")
    parts = detail if isinstance(detail, Mapping) else {}
    shown = {name: value for name, value in evaluation.profile.items() if _SHARES_OF.get(name) not in parts}
    if parts:
        shown["detail"] = {name: value for name, value in parts.items() if name not in shown}
    found |= _figures("profile", shown)
    return dict(list(found.items())[:MAX_METRICS])


def _figures(name: str, value: object, depth: int = 0) -> dict[str, JSON]:
    """The numbers in a profile; those in tables are named by their first column."""
    if isinstance(value, bool) or value is None:
        return {}
    if isinstance(value, int | float):
        return {name: value}
    found: dict[str, JSON] = {}
    if isinstance(value, Mapping) and depth < _DEPTH:
        for key, inner in value.items():
            if key not in _NO_FIGURES:
                found |= _figures(f"{name}.{key}", inner, depth + 1)
    elif isinstance(value, list | tuple) and depth < _DEPTH:
        for row in value[:_ROWS]:
            if isinstance(row, list | tuple) and len(row) == 2 and isinstance(row[0], str):
                found |= _figures(f"{name}.{row[0]}", row[1], depth + 1)
    return found


def device_name(evaluation: Evaluation) -> str:
    """The device's name in tables and on the leaderboard."""
    device = evaluation.provenance.get("device")
    return str(device.get("name", "unknown")) if isinstance(device, Mapping) else "unknown"


def _interval(evaluation: Evaluation, baseline: str) -> Interval | None:
    return None if evaluation.speedup is None else evaluation.speedup.get(baseline)


def _medians(evaluation: Evaluation) -> dict[str, float]:
    return {name: latency.median for name, latency in evaluation.latency_ms.items()}


def save_task(session: Session, task: Task) -> int:
    """Store a task; its id."""
    return tasks.add_task(
        session,
        suite=task.suite,
        name=task.name,
        source_hash=task.source_hash,
        source=task.source,
        category=task.category,
        dtype=task.dtype,
    )


def save_evaluation(
    session: Session,
    job_id: int,
    context: EvaluationContext,
    source: str,
    evaluation: Evaluation,
    *,
    round_number: int,
    evaluation_id: str | None = None,
) -> str:
    """Store a candidate and its evaluation; the evaluation's id, which is a new one unless given."""
    candidate_id = results.add_candidate(
        session, job_id, round_number=round_number, candidate_hash=candidate_hash(source), source=source
    )
    evaluation_id = evaluation_id or uuid.uuid4().hex
    results.add_evaluation(
        session,
        evaluation_id,
        candidate_id=candidate_id,
        round_number=round_number,
        platform=context.platform.name,
        device=device_name(evaluation),
        sandbox=context.sandbox.name,
        verdict=evaluation.verdict.value,
        code=evaluation.code,
        message=evaluation.message,
        tags=evaluation.tags,
        measurements=measurements_of(evaluation),
        result=evaluation.to_json(),
        noise=noise_of(evaluation.profile),
    )
    return evaluation_id
