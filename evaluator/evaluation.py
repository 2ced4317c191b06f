"""The evaluation of one candidate on one device: its verdict, speedups, latencies, checks and provenance."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tasks.outcomes import Verdict

SCHEMA = "kernelwright.evaluation/1"

Json = Any  # values that json.dumps accepts; checked where they come in


def noise_of(profile: Mapping[str, object]) -> float | None:
    """The load of other programs while calls were timed; None if nothing was timed, or nobody knows."""
    found = profile.get("others_cores_busy")  # every platform's `InterferenceMeter.facts` calls it so
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def shape_group_of(result: Mapping[str, Any]) -> int | None:
    """The shape group whose inputs were timed, by an evaluation's result as JSON; None: those of `get_inputs()`."""
    found = ((result.get("provenance") or {}).get("settings") or {}).get("shape_group")
    return found if isinstance(found, int) else None


@dataclass(frozen=True)
class Interval:
    """A speedup with its 95 % interval. Above 1 the candidate is faster than the baseline."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Latency:
    """The time of one call in milliseconds: the median over timed calls and its 95 % interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Check:
    """One comparison of a candidate with the oracle: the input family, the largest error and the allowed error."""

    inputs: str
    passed: bool
    max_error: float | None = None
    allowed_error: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Correctness:
    """The correctness checks of an evaluation.

    Attributes:
        checks: all checks.
        worst: the check with the largest error relative to its allowance.
        tolerance: the row of the table by which the outputs were judged, and the tolerances that the task declared.
        kernelbench: the verdict of KernelBench's rule on the same outputs, if requested. It never changes a verdict.
        state: the parameters and buffers that the reference's calls change, and those that the candidate lacks.
        spot_checks: the number of timed calls on inputs of another family, by family.
        neighbours: what the candidate makes of other shapes, strides and alignment: never part of the verdict. A trial
            tries none; None where nothing is timed.
    """

    checks: tuple[Check, ...] = ()
    worst: Check | None = None
    tolerance: Mapping[str, Json] = field(default_factory=dict)
    kernelbench: Mapping[str, Json] | None = None
    state: Mapping[str, Json] | None = None
    spot_checks: Mapping[str, int] = field(default_factory=dict)
    neighbours: Mapping[str, Json] | None = None


@dataclass(frozen=True)
class Roofline:
    """The shortest time (ms) that the device's measured limits allow, which limit sets it, and the share reached."""

    bound: str  # "memory", "cache" (it is faster than memory alone allows) or "compute"
    limit_ms: float
    fraction: float


@dataclass(frozen=True)
class Comparison:
    """The candidate against another one that was timed in the same process sets.

    Attributes:
        candidate: the other one's hash.
        decision: `better`, `worse`, `alike` (within 2 %) or `open` (not decided).
        speedup: over the other one, with the interval of the sequential test; None if they were not timed together.
        sets: the process sets that it took.
        absent: why they were not timed together.
    """

    candidate: str
    decision: str
    speedup: Interval | None
    sets: int
    absent: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Json] | None) -> "Comparison | None":
        """The inverse of `asdict`; None of None."""
        if data is None:
            return None
        speedup = data["speedup"]
        return cls(**{**data, "speedup": None if speedup is None else Interval(**speedup)})


@dataclass(frozen=True)
class Evaluation:
    """The result that `kernelwright evaluate --json` prints and the store keeps.

    `speedup` has the keys `eager` and `compile`. It is None unless the verdict is `passed`. `compile` is absent if
    torch.compile could not run the task.
    """

    verdict: Verdict
    message: str
    code: str | None = None
    detail: str = ""
    tags: tuple[str, ...] = ()
    correctness: Correctness = field(default_factory=Correctness)
    speedup: Mapping[str, Interval] | None = None
    latency_ms: Mapping[str, Latency] = field(default_factory=dict)
    roofline: Roofline | None = None
    profile: Mapping[str, Json] = field(default_factory=dict)
    provenance: Mapping[str, Json] = field(default_factory=dict)
    cost_s: Mapping[str, float] = field(default_factory=dict)
    champion: Comparison | None = None  # with the best candidate so far, where one was given

    @property
    def passed(self) -> bool:
        """Whether the candidate is correct and was timed."""
        return self.verdict is Verdict.PASSED

    def to_json(self) -> dict[str, Json]:
        """The object that `from_json` reads, of plain JSON values."""
        return {"schema": SCHEMA, **asdict(self), "verdict": self.verdict.value, "tags": list(self.tags)}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> "Evaluation":
        """The inverse of `to_json`.

        Raises:
            ValueError: the object is of another schema or lacks a field.
        """
        if data.get("schema") != SCHEMA:
            raise ValueError(f"schema: expected {SCHEMA!r}, got {data.get('schema')!r}")
        try:
            worst = data["correctness"]["worst"]
            speedup = data["speedup"]
            return cls(
                verdict=Verdict(data["verdict"]),
                message=data["message"],
                code=data["code"],
                detail=data["detail"],
                tags=tuple(data["tags"]),
                correctness=Correctness(
                    tuple(Check(**check) for check in data["correctness"]["checks"]),
                    None if worst is None else Check(**worst),
                    data["correctness"].get("tolerance", {}),
                    data["correctness"].get("kernelbench"),
                    data["correctness"].get("state"),
                    data["correctness"].get("spot_checks", {}),
                    data["correctness"].get("neighbours"),
                ),
                speedup=None if speedup is None else {name: Interval(**value) for name, value in speedup.items()},
                latency_ms={name: Latency(**value) for name, value in data["latency_ms"].items()},
                roofline=None if data["roofline"] is None else Roofline(**data["roofline"]),
                profile=data["profile"],
                provenance=data["provenance"],
                cost_s=data["cost_s"],
                champion=Comparison.from_json(data.get("champion")),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"evaluation: malformed field {error}") from error
