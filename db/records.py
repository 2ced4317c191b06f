"""What the store gives back: plain values, detached from the database."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from tasks.task import Task

JsonValue = Any  # what db.types.clean_json accepts


class JobStatus(StrEnum):
    """Where a job stands. All but `queued` and `running` are ends, yet a job can be resumed from any but `done`."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"  # by `jobs cancel`
    INTERRUPTED = "interrupted"  # by a signal, a crash or a loss of power
    FAILED = "failed"  # something outside the candidates: no sandbox, no model, an invalid task


OPEN = (JobStatus.QUEUED, JobStatus.RUNNING)
"""What a job is while something may still happen to it by itself."""

RESUMABLE = (JobStatus.CANCELLED, JobStatus.INTERRUPTED, JobStatus.FAILED)
"""How a job ended that can be taken up again."""


@dataclass(frozen=True)
class Owner:
    """The process that runs a job; `started` tells it from a later one with the same pid."""

    host: str
    pid: int
    started: str


@dataclass(frozen=True)
class TaskHead:
    """An op as it was submitted, without its source: as much as lists show."""

    id: int
    suite: str
    name: str
    source_hash: str
    category: str
    dtype: str

    @property
    def ref(self) -> str:
        """`suite/name`."""
        return f"{self.suite}/{self.name}"


@dataclass(frozen=True)
class TaskRecord(TaskHead):
    """An op as it was submitted."""

    source: str = field(kw_only=True)

    def to_task(self) -> Task:
        """The op itself."""
        return Task(name=self.name, source=self.source, suite=self.suite, category=self.category, dtype=self.dtype)


@dataclass(frozen=True)
class JobRecord:
    """A job with the name of its task; the task's source is with a single job (a TaskRecord), not with one of a list.

    `model` is None for a candidate that a user brought himself.
    """

    id: int
    task: TaskHead
    kind: str
    platform: str
    sandbox: str
    model: str | None
    strategy: str | None
    options: Mapping[str, JsonValue]
    status: JobStatus
    stop_reason: str | None
    error: str | None
    cancel_requested: bool
    owner: Owner | None
    rounds_done: int
    cost_usd: float
    tokens: int
    best_evaluation_id: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    user: str
    priority: int
    fair_tag: int
    attempt: int
    worker_id: str | None
    batch_id: int | None
    sample: int | None
    unsettled_usd: float
    heartbeat_at: datetime | None = None


@dataclass(frozen=True)
class JobCost:
    """As much of a job as tells what it cost and may cost."""

    id: int
    status: JobStatus
    model: str | None
    options: Mapping[str, JsonValue]
    attempt: int
    stop_reason: str | None
    cost_usd: float
    unsettled_usd: float
    started_at: datetime | None


@dataclass(frozen=True)
class Measured:
    """The columns of an evaluation that queries need: ratios over the baselines and medians in milliseconds."""

    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speedup_compile: float | None = None
    speedup_compile_low: float | None = None
    speedup_compile_high: float | None = None
    candidate_ms: float | None = None
    eager_ms: float | None = None
    compile_ms: float | None = None
    roofline_fraction: float | None = None


@dataclass(frozen=True)
class EvaluationRecord:
    """An evaluation with its candidate; `result` is the whole object that the evaluator gave."""

    id: str
    job_id: int
    candidate_hash: str
    source: str
    round: int
    platform: str
    device: str
    sandbox: str
    verdict: str
    code: str | None
    message: str
    tags: tuple[str, ...]
    measured: Measured
    result: Mapping[str, JsonValue]
    created_at: datetime
    retracted_at: datetime | None = None


@dataclass(frozen=True)
class LlmCall:
    """One call of a model. `cost_usd` is None where no price is known, `key` where an earlier version stored it."""

    round: int
    model: str
    role: str
    purpose: str
    messages: list[JsonValue]
    reply: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    latency_s: float
    key: str | None = None
    reasoning: str = ""
    reasoning_tokens: int | None = None
    tool_calls: list[JsonValue] = field(default_factory=list)


class WorkerStatus(StrEnum):
    """How a worker is."""

    ALIVE = "alive"
    STOPPING = "stopping"  # takes nothing more
    STOPPED = "stopped"  # ended in good order
    LOST = "lost"  # not heard of any more; others do its work


@dataclass(frozen=True)
class WorkerRecord:
    """A worker process and its device. `device` is what people read, `kind` what tells like devices from others."""

    id: str
    owner: Owner
    platform: str
    slot: int
    device: str
    kind: str
    sandbox: str
    version: str
    status: WorkerStatus
    started_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None


@dataclass(frozen=True)
class EventRecord:
    """What happened in a job."""

    id: int
    kind: str
    round: int
    data: Mapping[str, JsonValue] = field(default_factory=dict)
    created_at: datetime | None = None
