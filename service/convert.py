"""The same evaluation as the evaluator, the agents and the store each want it."""

from collections.abc import Mapping

from agents.ports import Outcome
from db.records import Measured
from evaluator.evaluation import Evaluation, Interval
from evaluator.platforms import Platform


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


def outcome_of(evaluation: Evaluation, platform: Platform, *, candidate_hash: str, evaluation_id: str) -> Outcome:
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
        profile_text=platform.profile_text(dict(evaluation.profile)),
        evaluation_id=evaluation_id,
    )


def device_name(evaluation: Evaluation) -> str:
    """The one line that names the device in tables and on the leaderboard."""
    device = evaluation.provenance.get("device")
    return str(device.get("name", "unknown")) if isinstance(device, Mapping) else "unknown"


def _interval(evaluation: Evaluation, baseline: str) -> Interval | None:
    return None if evaluation.speedup is None else evaluation.speedup.get(baseline)


def _medians(evaluation: Evaluation) -> dict[str, float]:
    return {name: latency.median for name, latency in evaluation.latency_ms.items()}
