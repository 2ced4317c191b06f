"""Requests and responses on evaluations, candidates, the leaderboard and devices."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from db.records import EvaluationRecord, LeaderboardEntry, WorkerRecord, WorkerStatus
from web.api.parameters import TASK_REF, Reason, WeightsDigest
from web.api.schemas.jobs import (
    MAX_SOURCE_CHARS,
    OP_EXAMPLE,
    TAGS_DESCRIPTION,
    Baselines,
    OpName,
    Platform,
    Source,
    body_form,
)

_CANDIDATE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x, w):\n"
_CANDIDATE += "        return torch.nn.functional.gelu(x * w)\n"
_FOR_TASK: dict[str, JsonValue] = {"task": "starter/gelu_tanh", "candidate": _CANDIDATE, "profile": True}
_FOR_SOURCE: dict[str, JsonValue] = {"source": OP_EXAMPLE, "name": "scaled_gelu", "candidate": _CANDIDATE}


class _EvaluationOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    candidate: Annotated[str, Field(max_length=MAX_SOURCE_CHARS, description="Python source that defines ModelNew.")]
    platform: Platform | None = None
    profile: bool = Field(default=False, description="Also profile the candidate if it passes.")
    sanitize: bool = Field(
        default=False,
        description="Profile, and have compute-sanitizer watch a call. On platforms cuda and triton.",
    )
    cold: bool = Field(default=False, description="Clear the caches before each timed call. Such results get no rank.")
    shape_group: Annotated[int, Field(ge=0, le=9999)] | None = Field(
        default=None,
        description="Time the inputs of the task's `get_input_groups()[N]`. Such results get no rank.",
    )
    baselines: Baselines | None = None
    weights: WeightsDigest = None
    tolerance: Literal["kernelbench"] | None = Field(
        default=None, description="Also report the result of this accuracy rule. It does not change the verdict."
    )


class EvaluationOfTask(_EvaluationOptions):
    """A candidate for a task of a suite."""

    model_config = ConfigDict(json_schema_extra={"examples": [_FOR_TASK]})

    task: Annotated[str, Field(pattern=TASK_REF, description="suite/name of a task.")]


class EvaluationOfSource(_EvaluationOptions):
    """A candidate for an op of the user's own."""

    model_config = ConfigDict(json_schema_extra={"examples": [_FOR_SOURCE]})

    source: Source
    name: OpName = "op"


EvaluationRequest = Annotated[
    Annotated[EvaluationOfTask, Tag("of_task")] | Annotated[EvaluationOfSource, Tag("of_source")],
    Discriminator(body_form),
]


class EvaluationSummary(BaseModel):
    """An evaluation. Speedups are ratios, latencies are in milliseconds.

    With the tag `cycles` a latency is a count of cycles at a nominal rate of 1 GHz, not a time.
    """

    id: str
    job_id: int
    candidate_hash: str
    round: int
    platform: str
    device: str
    sandbox: str
    verdict: str = Field(examples=["passed"])
    code: str | None
    message: str
    tags: list[str] = Field(description=TAGS_DESCRIPTION)
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    speedup_compile: float | None
    candidate_ms: float | None
    eager_ms: float | None
    compile_ms: float | None
    roofline_fraction: float | None
    speedup_best: float | None
    speedup_best_low: float | None
    speedup_best_high: float | None
    best_baseline: str | None = Field(description="The fastest baseline, over which `speedup_best` is.")
    created_at: datetime
    retracted_at: datetime | None = Field(description="When an operator retracted it.")

    @classmethod
    def of(cls, record: EvaluationRecord) -> Self:
        """Convert an evaluation, without its result object."""
        return cls.model_validate({**asdict(record), **asdict(record.measurements)})


class EvaluationWhole(EvaluationSummary):
    """An evaluation with the evaluator's whole result."""

    result: dict[str, Any]


class CandidateSummary(BaseModel):
    """A candidate of a job and its latest evaluation."""

    hash: str
    round: int
    created_at: datetime
    evaluation: EvaluationSummary | None


class CandidateList(BaseModel):
    """All candidates of a job, in the order in which they were written."""

    candidates: list[CandidateSummary]


class CandidateWhole(CandidateSummary):
    """A candidate with its source."""

    source: str


class Judgement(BaseModel):
    """The reason to retract or to restore an evaluation."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"reason": "measured while the host was being upgraded"}]},
    )

    reason: Reason


class Board(BaseModel):
    """An entry of the leaderboard. Its figures are null if no candidate passed."""

    task: str
    source_hash: str
    category: str
    dtype: str
    platform: str
    device: str
    sandbox: str
    model: str
    evaluations: int
    passed: int
    rank: int | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    speedup_compile: float | None
    speedup_compile_low: float | None
    speedup_compile_high: float | None
    candidate_ms: float | None
    eager_ms: float | None
    compile_ms: float | None
    roofline_fraction: float | None
    speedup_best: float | None
    speedup_best_low: float | None
    speedup_best_high: float | None
    best_baseline: str | None = Field(description="The fastest baseline, over which `speedup_best` is.")
    tags: list[str] = Field(description=TAGS_DESCRIPTION)
    job_id: int | None
    evaluation_id: str | None
    candidate_hash: str | None
    evaluated_at: datetime | None
    cost_usd: float | None = Field(
        description="The cost of the whole job that wrote the candidate; null if it is not known."
    )
    pooled: int = Field(description="The number of the candidate's evaluations on this board that the figures pool.")
    memory: str = Field(
        description="What the job could be told of earlier ones: off, similar, all (kernels of this op, too) or empty."
    )

    @classmethod
    def of(cls, entry: LeaderboardEntry) -> Self:
        """Convert an entry."""
        return cls.model_validate(asdict(entry))


class Leaderboard(BaseModel):
    """A page of the leaderboard. `total` entries match the filters."""

    entries: list[Board]
    total: int


class Device(BaseModel):
    """A worker and its device."""

    worker_id: str
    host: str
    platform: str
    slot: int
    device: str
    kind: str
    sandbox: str
    version: str
    status: WorkerStatus
    started_at: datetime
    heartbeat_at: datetime
    heartbeat_age_s: float

    @classmethod
    def of(cls, worker: WorkerRecord, now: datetime) -> Self:
        """Convert a worker."""
        return cls(
            worker_id=worker.id,
            host=worker.owner.host,
            platform=worker.platform,
            slot=worker.slot,
            device=worker.device,
            kind=worker.kind,
            sandbox=worker.sandbox,
            version=worker.version,
            status=worker.status,
            started_at=worker.started_at,
            heartbeat_at=worker.heartbeat_at,
            heartbeat_age_s=max((now - worker.heartbeat_at).total_seconds(), 0.0),
        )


class DeviceList(BaseModel):
    """The live workers."""

    devices: list[Device]
