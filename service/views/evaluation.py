"""The view of an evaluation's result object. A value that is missing or malformed is shown as missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from db.evaluations import results
from db.records import EvaluationRecord
from db.store import Store
from evaluator.referee.protocol.baselines import BASELINES, title_of
from tasks.outcomes import GUARDED, Clock, NeighbourResult, check_result, clock_of

_MAX_SAMPLES = 2000  # of one series; more would only make the page larger


@dataclass(frozen=True)
class Ratio:
    """A speedup with its 95 % interval."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class CheckLine:
    """One check. `result` is passed, failed or skipped, `used` is `max_error / allowed_error`."""

    inputs: str
    result: str
    max_error: float | None
    allowed_error: float | None
    used: float | None
    note: str


@dataclass(frozen=True)
class NeighbourLine:
    """What a candidate makes of inputs beside the task's own: `result` is a `NeighbourResult`."""

    inputs: str
    result: str
    note: str

    @property
    def right(self) -> bool:
        """Whether the candidate is right for them."""
        return self.result == NeighbourResult.RIGHT

    @property
    def guarded(self) -> bool:
        """Whether an exported file leaves them to the task's own code."""
        return self.result in GUARDED


@dataclass(frozen=True)
class LatencyLine:
    """The time of one call in milliseconds: median, 95 % interval, and the timed calls by process set.

    `over` is the candidate's speedup over this one; None for the candidate itself.
    """

    name: str
    title: str
    median_ms: float
    low_ms: float | None
    high_ms: float | None
    sets_ms: tuple[tuple[float, ...], ...] = ()
    over: Ratio | None = None


@dataclass(frozen=True)
class RooflineView:
    """How close a kernel comes to the device's limits. A rate is None if nothing was counted.

    Of what bounds the op, `achieved` is `fraction` of `peak`: for bytes, `peak_gb_per_s` is what the device allows for
    as much reading and writing as this op does. Where arithmetic bounds it, it is the rate of reading alone.
    """

    bound: str
    limit_ms: float
    fraction: float
    bytes_moved: float | None
    flops: float | None
    achieved_gb_per_s: float | None
    achieved_gflop_per_s: float | None
    peak_gb_per_s: float | None
    peak_gflop_per_s: float | None


@dataclass(frozen=True)
class EvaluationView:
    """An evaluation, ready to be shown.

    Attributes:
        best: the speedup over the fastest baseline, which `best_title` names.
        without: why baselines that were asked for have no latency, a sentence each.
    """

    id: str
    job_id: int
    candidate_hash: str
    round: int
    platform: str
    device: str
    sandbox: str
    security_boundary: bool
    verdict: str
    code: str | None
    message: str
    detail: str
    tags: tuple[str, ...]
    eager: Ratio | None
    compile: Ratio | None
    best: Ratio | None
    best_title: str
    checks: tuple[CheckLine, ...]
    neighbours: tuple[NeighbourLine, ...]
    tolerance: str
    latencies: tuple[LatencyLine, ...]
    without: tuple[str, ...]
    roofline: RooflineView | None
    profile: tuple[tuple[str, str], ...]
    provenance: tuple[tuple[str, str], ...]
    cost_s: tuple[tuple[str, float], ...]
    created_at: datetime
    retracted_at: datetime | None

    @property
    def clock(self) -> Clock:
        """What its latencies and speedups are made of."""
        return clock_of(self.tags)


def get_evaluation(store: Store, evaluation_id: str) -> EvaluationRecord:
    """An evaluation with its whole result.

    Raises:
        NotInStore: There is no such evaluation.
    """
    with store.read() as session:
        return results.get_evaluation(session, evaluation_id)


def evaluation_view(record: EvaluationRecord) -> EvaluationView:
    """The view of an evaluation."""
    result = record.result
    profile = _mapping(result.get("profile"))
    provenance = _mapping(result.get("provenance"))
    measurements = record.measurements
    return EvaluationView(
        id=record.id,
        job_id=record.job_id,
        candidate_hash=record.candidate_hash,
        round=record.round,
        platform=record.platform,
        device=record.device,
        sandbox=record.sandbox,
        security_boundary=bool(provenance.get("security_boundary", record.sandbox == "docker")),
        verdict=record.verdict,
        code=record.code,
        message=record.message,
        detail=str(result.get("detail") or ""),
        tags=record.tags,
        eager=ratio(measurements.speedup, measurements.speedup_low, measurements.speedup_high),
        compile=ratio(
            measurements.speedup_compile, measurements.speedup_compile_low, measurements.speedup_compile_high
        ),
        best=ratio(measurements.speedup_best, measurements.speedup_best_low, measurements.speedup_best_high),
        best_title=title_of(measurements.best_baseline or ""),
        checks=_checks(_mapping(result.get("correctness"))),
        neighbours=_neighbours(_mapping(_mapping(result.get("correctness")).get("neighbours"))),
        tolerance=_tolerance(_mapping(_mapping(result.get("correctness")).get("tolerance"))),
        latencies=_latencies(
            _mapping(result.get("latency_ms")), _mapping(profile.get("samples_ms")), _mapping(result.get("speedup"))
        ),
        without=tuple(map(str, _mapping(profile.get("absent")).values())),
        roofline=_roofline(_mapping(result.get("roofline")), profile),
        profile=_flat({key: value for key, value in profile.items() if key not in ("samples_ms", "absent")}),
        provenance=_flat(provenance),
        cost_s=tuple((key, value) for key, item in _mapping(result.get("cost_s")).items() if (value := number(item))),
        created_at=record.created_at,
        retracted_at=record.retracted_at,
    )


def ratio(value: float | None, low: float | None, high: float | None) -> Ratio | None:
    """A speedup with its interval; None without a value."""
    return None if value is None else Ratio(value, low, high)


def number(value: object) -> float | None:
    """A number as a float; None for a value that is no number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _checks(correctness: Mapping[str, Any]) -> tuple[CheckLine, ...]:
    lines = []
    for check in _sequence(correctness.get("checks")):
        if not isinstance(check, Mapping):
            continue
        error, allowed = number(check.get("max_error")), number(check.get("allowed_error"))
        lines.append(
            CheckLine(
                inputs=str(check.get("inputs", "")),
                result=check_result(check),
                max_error=error,
                allowed_error=allowed,
                used=error / allowed if error is not None and allowed else None,
                note=str(check.get("note") or ""),
            )
        )
    return tuple(lines)


def _neighbours(neighbours: Mapping[str, Any]) -> tuple[NeighbourLine, ...]:
    checks = [check for check in _sequence(neighbours.get("checks")) if isinstance(check, Mapping)]
    return tuple(
        NeighbourLine(*(str(check.get(name) or "") for name in ("inputs", "result", "note"))) for check in checks
    )


def _tolerance(tolerance: Mapping[str, Any]) -> str:
    return "; ".join(f"{key}: {value}" for key, value in _flat(tolerance))


def _latencies(
    latencies: Mapping[str, Any], samples: Mapping[str, Any], speedups: Mapping[str, Any]
) -> tuple[LatencyLine, ...]:
    lines = []
    for name in (*BASELINES, "candidate"):
        latency = _mapping(latencies.get(name))
        median = number(latency.get("median"))
        if median is None:
            continue
        sets = tuple(
            tuple(value for item in _sequence(each)[:_MAX_SAMPLES] if (value := number(item)) is not None)
            for each in _sequence(samples.get(name))[:16]
        )
        speedup = _mapping(speedups.get(name))
        over = ratio(*(number(speedup.get(key)) for key in ("value", "low", "high")))
        low, high = number(latency.get("low")), number(latency.get("high"))
        lines.append(LatencyLine(name, title_of(name), median, low, high, sets, over))
    return tuple(lines)


def _roofline(roofline: Mapping[str, Any], profile: Mapping[str, Any]) -> RooflineView | None:
    limit, fraction = number(roofline.get("limit_ms")), number(roofline.get("fraction"))
    if limit is None or fraction is None:
        return None
    bound, bytes_moved = str(roofline.get("bound", "")), number(profile.get("bytes_moved_min"))
    peak = number(profile.get("peak_read_gb_per_s"))
    if bound != "compute":
        peak = bytes_moved / limit / 1e6 if bytes_moved and limit > 0 else None
    return RooflineView(
        bound=bound,
        limit_ms=limit,
        fraction=fraction,
        bytes_moved=bytes_moved,
        flops=number(profile.get("flops")),
        achieved_gb_per_s=number(profile.get("achieved_gb_per_s")),
        achieved_gflop_per_s=number(profile.get("achieved_gflop_per_s")),
        peak_gb_per_s=peak,
        peak_gflop_per_s=number(profile.get("peak_gflop_per_s")),
    )


def _flat(value: Mapping[str, Any], prefix: str = "") -> tuple[tuple[str, str], ...]:
    rows: list[tuple[str, str]] = []
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping):
            rows += _flat(item, f"{name}.")
        elif isinstance(item, list) and item and all(isinstance(each, list) and len(each) == 2 for each in item):
            rows += [(f"{name}.{first}", _text(second)) for first, second in item]
        else:
            rows.append((name, _text(item)))
    return tuple(rows[:400])


def _text(value: object) -> str:
    if value is None:
        return "not known"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return str(value)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
