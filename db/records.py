"""Plain values that the store takes and gives back, detached from the database."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from tasks.task import Task

JsonValue = Any  # what db.types.clean_json accepts


# Tasks


@dataclass(frozen=True)
class TaskHead:
    """A submitted op without its source, as lists show it."""

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
    """A submitted op with its source."""

    source: str = field(kw_only=True)

    def to_task(self) -> Task:
        """The op as a `Task`."""
        return Task(name=self.name, source=self.source, suite=self.suite, category=self.category, dtype=self.dtype)


@dataclass(frozen=True)
class TaskCount:
    """The newest source of a task, the number of jobs on it, and how many of these have a passed candidate."""

    task: TaskHead
    jobs: int
    passed: int


# Jobs


class JobStatus(StrEnum):
    """The status of a job. A job ends in any but `queued` and `running`; it can be resumed from any end but `done`."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"  # by a user
    INTERRUPTED = "interrupted"  # by a signal, a crash or a loss of power
    FAILED = "failed"  # for a reason outside the candidates: no sandbox, no model, an invalid task


OPEN = (JobStatus.QUEUED, JobStatus.RUNNING)
"""The statuses of a job that has not ended."""

RESUMABLE = (JobStatus.CANCELLED, JobStatus.INTERRUPTED, JobStatus.FAILED)
"""The statuses of a job that ended early and can be resumed."""


PLAN_ONLY = "plan_only"
"""The option of a job over a whole model that ends with its plan."""

WEIGHTS = "weights"
"""The option of a job that names the weights which it works with, by their digest. They are kept for the job's user."""


@dataclass(frozen=True)
class Owner:
    """The process that runs a job. `started` distinguishes it from a later process with the same pid."""

    host: str
    pid: int
    started: str


@dataclass(frozen=True)
class JobRecord:
    """A job and its task. A single job has the task's source (a `TaskRecord`); a job of a list has a `TaskHead`.

    `model` is None for the evaluation of a candidate that a user wrote.
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
class ModelRegionRecord:
    """A region of a whole model. `eager_ms` is the time of all its occurrences, `share` that part of the model's."""

    name: str
    position: int
    kind: str
    occurrences: int
    eager_ms: float
    share: float
    task_id: int
    job_id: int | None


@dataclass(frozen=True)
class WeightsRecord:
    """The weights of a model that a user has sent, without their bytes. They were last sent or read at `used_at`.

    Those that are not `complete` were interrupted while they were stored.
    """

    user: str
    digest: str
    size_bytes: int
    complete: bool
    created_at: datetime
    used_at: datetime


@dataclass(frozen=True)
class ModelRunHead:
    """A run over a whole model as lists show it: `task` is the model, `model` the one that writes kernels."""

    id: int
    task: TaskHead
    user: str
    platform: str
    model: str
    status: JobStatus
    stage: str
    error: str | None
    batch_id: int | None
    kept: tuple[str, ...] | None
    evaluation_id: str | None
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True)
class ModelRunRecord(ModelRunHead):
    """A run over a whole model with all that is known of it (`db.tables.ModelRunRow`)."""

    task: TaskRecord
    options: Mapping[str, JsonValue]
    plan: Mapping[str, JsonValue]
    trials: tuple[Mapping[str, JsonValue], ...]
    regions: tuple[ModelRegionRecord, ...] = ()


@dataclass(frozen=True)
class JobState:
    """The columns of a job that change while it runs."""

    status: JobStatus
    stop_reason: str | None
    cancel_requested: bool
    rounds_done: int
    cost_usd: float
    tokens: int
    best_evaluation_id: str | None

    @property
    def ended(self) -> bool:
        """Whether no more events follow unless the job is resumed."""
        return self.status not in OPEN


@dataclass(frozen=True)
class JobCost:
    """The columns of a job that determine what it has cost and may still cost."""

    id: int
    status: JobStatus
    model: str | None
    options: Mapping[str, JsonValue]
    attempt: int
    stop_reason: str | None
    cost_usd: float
    unsettled_usd: float
    started_at: datetime | None
    kind: str


@dataclass(frozen=True)
class EventRecord:
    """Something that happened in a job."""

    id: int
    kind: str
    round: int
    data: Mapping[str, JsonValue] = field(default_factory=dict)
    created_at: datetime | None = None


@dataclass(frozen=True)
class LlmCall:
    """One call of a model. `cost_usd` is None if no price is known, `key` if an earlier version stored the call."""

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


# Candidates and evaluations


@dataclass(frozen=True)
class Measurements:
    """The measured columns of an evaluation: speedups over the baselines, median latencies in milliseconds, and the
    fraction of the roofline that was reached.

    `speedup_best` is over `best_baseline`, the fastest of all baselines that were timed.
    """

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
    speedup_best: float | None = None
    speedup_best_low: float | None = None
    speedup_best_high: float | None = None
    best_baseline: str | None = None


@dataclass(frozen=True)
class Noise:
    """The load of other programs on the device during an evaluation, and its tags."""

    created_at: datetime
    load: float
    tags: tuple[str, ...]


@dataclass(frozen=True)
class CostRecord:
    """How long the stages of an evaluation took, in seconds, whether it was a trial, and the task of its job."""

    task_id: int
    trial: bool
    cost_s: Mapping[str, float]


MEASUREMENTS = tuple(each.name for each in fields(Measurements))
"""The names of these columns."""


@dataclass(frozen=True)
class EvaluationRecord:
    """An evaluation with its candidate. `result` is the whole object that the evaluator returned."""

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
    measurements: Measurements
    result: Mapping[str, JsonValue]
    created_at: datetime
    retracted_at: datetime | None = None


@dataclass(frozen=True)
class CandidateRecord:
    """A candidate of a job, and its latest evaluation in this job."""

    hash: str
    round: int
    source: str
    created_at: datetime
    evaluation: EvaluationRecord | None


@dataclass(frozen=True)
class RankedKernel:
    """A ranked entry of the leaderboard with the user of its job."""

    task_id: int
    task: str
    suite: str
    device: str
    sandbox: str
    model: str
    tags: tuple[str, ...]
    speedup: float
    speedup_low: float
    speedup_high: float
    job_id: int
    evaluation_id: str
    candidate_hash: str
    user: str


@dataclass(frozen=True)
class JudgedRecord:
    """An evaluation without its large parts. `champion` is what was found beside the best candidate of that time, and
    `bound` what limits the op; None: not known.
    """

    evaluation_id: str
    job_id: int
    task_id: int
    candidate_hash: str
    model: str | None
    verdict: str
    tags: tuple[str, ...]
    champion: Mapping[str, JsonValue] | None
    bound: str | None


# Batches


@dataclass(frozen=True)
class BatchRecord:
    """A batch. `spec` is the request, with those of its combinations that were refused."""

    id: int
    name: str
    user: str
    spec: Mapping[str, JsonValue]
    budget_usd: float | None
    cancel_requested: bool
    created_at: datetime


@dataclass(frozen=True)
class BatchState:
    """Sums over the jobs of a batch: jobs by status, costs, finished rounds, and jobs with a passed candidate."""

    cancel_requested: bool = False
    counts: Mapping[JobStatus, int] = field(default_factory=dict)
    cost_usd: float = 0.0
    rounds_done: int = 0
    solved: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing more happens in the batch unless it is resumed."""
        return not any(status in OPEN for status in self.counts)


@dataclass(frozen=True)
class BestEvaluation:
    """The evaluation of the best candidate of a job in a batch.

    Attributes:
        refuted: whether any evaluation of the candidate on this task and platform found it wrong.
        provenance: that of the evaluator's result.
    """

    id: str
    verdict: str
    candidate_hash: str
    device: str
    sandbox: str
    tags: tuple[str, ...]
    retracted: bool
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
    best_baseline: str | None
    refuted: bool = False
    provenance: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def stands(self) -> bool:
        """Whether the candidate is right by all that counts: this was not taken back, and none found it wrong."""
        return not self.retracted and not self.refuted


# The leaderboard


class LeaderboardSort(StrEnum):
    """The orders of the leaderboard.

    All but `board`, `task` and `model` put entries without a rank last. Within entries of the same tier (db.leaderboard
    .rules) those without the value come after those with it.
    """

    BOARD = "board"  # by task; within a board by position
    TASK = "task"  # the same as `board`
    MODEL = "model"
    SPEEDUP = "speedup"
    SPEEDUP_COMPILE = "speedup_compile"
    SPEEDUP_BEST = "speedup_best"
    LATENCY = "latency"
    ROOFLINE = "roofline"
    COST = "cost"
    EVALUATED_AT = "evaluated_at"


@dataclass(frozen=True)
class LeaderboardFilters:
    """Conditions on entries; None means any. `source_hash` selects one source among several of the same task name."""

    suite: str | None = None
    platform: str | None = None
    task: str | None = None
    model: str | None = None
    dtype: str | None = None
    device: str | None = None
    source_hash: str | None = None


@dataclass(frozen=True)
class LeaderboardEntry:
    """The best candidate of a model on a board. The measurements are None if no candidate of the model passed.

    Attributes:
        evaluations: the number of the model's evaluations there.
        passed: how many of them passed; those of a candidate that another evaluation found wrong do not count.
        job_id: the first job of the model that had the candidate evaluated there.
        evaluation_id: the newest of the evaluations whose figures were pooled, of any job.
        evaluated_at: when it was stored.
        cost_usd: the cost of the whole job, or None if it is not known.
        pooled: the number of evaluations whose figures were pooled; 0 without measurements.
        memory: what the job could be told of earlier ones: `off`, `similar`, or `all`, kernels of this op among it;
            empty for jobs of earlier versions, and for candidates that no job wrote.
    """

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
    rank: int | None = None
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
    speedup_best: float | None = None
    speedup_best_low: float | None = None
    speedup_best_high: float | None = None
    best_baseline: str | None = None
    tags: tuple[str, ...] = ()
    job_id: int | None = None
    evaluation_id: str | None = None
    candidate_hash: str | None = None
    evaluated_at: datetime | None = None
    cost_usd: float | None = None
    pooled: int = 0
    memory: str = ""

    @property
    def board(self) -> tuple[str, str, str, str, str]:
        """The board on which this entry is ranked."""
        return (self.task, self.source_hash, self.platform, self.device, self.sandbox)


# Workers


class WorkerStatus(StrEnum):
    """The status of a worker."""

    ALIVE = "alive"
    STOPPING = "stopping"  # takes no more jobs
    STOPPED = "stopped"  # ended by itself
    LOST = "lost"  # sent no heartbeat for too long; other workers take over its jobs


@dataclass(frozen=True)
class WorkerRecord:
    """A worker process and its device. `device` names the device, `kind` is the hash of its device class."""

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


# Access and operation


@dataclass(frozen=True)
class TokenRecord:
    """An access token without its secret. `max_jobs` and `max_usd_a_day` are None if there is no limit."""

    id: int
    name: str
    user: str
    role: str
    max_jobs: int | None
    max_usd_a_day: float | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    def valid_at(self, moment: datetime) -> bool:
        """Whether the token is neither revoked nor expired at this moment."""
        return self.revoked_at is None and (self.expires_at is None or moment < self.expires_at)


@dataclass(frozen=True)
class AuditRecord:
    """A line of the audit log. `subject` is the kind and the id of what was changed, such as `evaluation/…`."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    reason: str
    data: Mapping[str, JsonValue]


@dataclass(frozen=True)
class StoreCounts:
    """How much the store holds: jobs by status, evaluations by verdict, queued jobs and the time of the oldest by
    platform, and the last heartbeats of live workers by host, platform and slot.
    """

    jobs: Mapping[str, int]
    queued: Mapping[str, tuple[int, datetime]]
    evaluations: Mapping[str, int]
    heartbeats: Mapping[tuple[str, str, str], datetime]
