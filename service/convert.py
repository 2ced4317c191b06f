"""The same evaluation as the evaluator, the agents and the store each want it."""

import json
from collections.abc import Mapping

from agents.ports import Outcome
from db.records import EvaluationRecord, Measured
from evaluator.evaluation import Evaluation, Interval


def measured_of(evaluation: Evaluation) -> Measured:
    """The numbers that queries need."""
    over_eager = _interval(evaluation, "eager")
    over_compile = _interval(evaluation, "compile")
    medians = _medians(evaluation)
    return Measured(
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
    )


def outcome_of(evaluation: Evaluation, *, candidate_hash: str, evaluation_id: str) -> Outcome:
    """What the agents get to know."""
    measured = measured_of(evaluation)
    return Outcome(
        candidate_hash=candidate_hash,
        verdict=evaluation.verdict.value,
        code=evaluation.code,
        message=evaluation.message,
        detail=evaluation.detail,
        tags=evaluation.tags,
        speedup=measured.speedup,
        speedup_low=measured.speedup_low,
        speedup_high=measured.speedup_high,
        speedup_compile=measured.speedup_compile,
        latency_ms=_medians(evaluation),
        roofline_fraction=measured.roofline_fraction,
        roofline_bound=None if evaluation.roofline is None else evaluation.roofline.bound,
        profile_text=profile_text(evaluation),
        evaluation_id=evaluation_id,
    )


def outcome_of_record(record: EvaluationRecord) -> Outcome:
    """What the agents got to know of an evaluation that is in the store."""
    evaluation = Evaluation.from_json(record.result)
    return outcome_of(evaluation, candidate_hash=record.candidate_hash, evaluation_id=record.id)


def profile_text(evaluation: Evaluation) -> str:
    """The profile for prompts: its own text where it has one, else its values line by line."""
    text = evaluation.profile.get("text")
    if isinstance(text, str):
        return text
    return "\n".join(f"{key}: {_plain(value)}" for key, value in evaluation.profile.items())


def device_text(device: object) -> str:
    """One line that names a device, of what provenance holds about it."""
    if isinstance(device, Mapping):
        if isinstance(device.get("name"), str):
            return str(device["name"])
        return ", ".join(f"{key} {_plain(value)}" for key, value in device.items())
    return str(device) if device else "unknown"


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _interval(evaluation: Evaluation, baseline: str) -> Interval | None:
    return None if evaluation.speedup is None else evaluation.speedup.get(baseline)


def _medians(evaluation: Evaluation) -> dict[str, float]:
    return {name: latency.median for name, latency in evaluation.latency_ms.items()}
