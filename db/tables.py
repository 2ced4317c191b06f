"""The tables of the store."""

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, ForeignKey, ForeignKeyConstraint, Index, MetaData, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from db.types import CleanText, PlainText, ShortText, UtcDateTime, utc_now

# Constraints have names, so that migrations can change them on every database.
NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """The base class of all tables."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
        datetime: UtcDateTime,
        str: CleanText,
    }


LOCAL_USER = "local"
"""The user of commands on this machine and of a server without login."""
_SORTABLE = (
    "speedup",
    "speedup_compile",
    "speedup_best",
    "candidate_ms",
    "roofline_fraction",
    "cost_usd",
    "evaluated_at",
)


class TaskRow(Base):
    """A submitted op. A name with another source is another row."""

    __tablename__ = "tasks"
    __table_args__ = (UniqueConstraint("suite", "name", "source_hash"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    suite: Mapped[str] = mapped_column(ShortText(255))
    name: Mapped[str] = mapped_column(ShortText(255))
    source_hash: Mapped[str] = mapped_column(ShortText(64))
    source: Mapped[str]
    category: Mapped[str] = mapped_column(ShortText(64))
    dtype: Mapped[str] = mapped_column(ShortText(32))
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class JobRow(Base):
    """A job and its owner. `kind` is `optimize`, `evaluate` (which may have no model) or `model` (`ModelRunRow`).

    `fair_tag` orders the jobs of all users within a platform and priority. `attempt` counts how often the job was
    queued. `unsettled_usd` is the upper bound of the costs of LLM calls whose reply was lost. Jobs of a batch have a
    `sample`, from 1.
    """

    __tablename__ = "jobs"
    __table_args__ = (Index(None, "status"), Index(None, "user", "created_at"), Index(None, "user", "id"))

    id: Mapped[int] = mapped_column(primary_key=True)
    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id"), index=True)
    kind: Mapped[str] = mapped_column(ShortText(16))
    platform: Mapped[str] = mapped_column(ShortText(32))
    sandbox: Mapped[str] = mapped_column(ShortText(32))
    model: Mapped[str | None]
    strategy: Mapped[str | None] = mapped_column(ShortText(64))
    options: Mapped[dict[str, Any]]
    status: Mapped[str] = mapped_column(ShortText(16))
    stop_reason: Mapped[str | None]
    error: Mapped[str | None]
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    owner_host: Mapped[str | None]
    owner_pid: Mapped[int | None]
    owner_started: Mapped[str | None]
    rounds_done: Mapped[int] = mapped_column(default=0)
    cost_usd: Mapped[float] = mapped_column(default=0.0)
    tokens: Mapped[int] = mapped_column(default=0)
    best_evaluation_id: Mapped[str | None] = mapped_column(ShortText(64))
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    user: Mapped[str] = mapped_column(ShortText(64), default=LOCAL_USER, server_default=LOCAL_USER)
    priority: Mapped[int] = mapped_column(default=0, server_default="0")
    fair_tag: Mapped[int] = mapped_column(default=0, server_default="0")
    attempt: Mapped[int] = mapped_column(default=0, server_default="0")
    worker_id: Mapped[str | None] = mapped_column(ShortText(36))
    batch_id: Mapped[int | None] = mapped_column(ForeignKey("batches.id"), index=True)
    sample: Mapped[int | None]
    unsettled_usd: Mapped[float] = mapped_column(default=0.0, server_default="0")
    heartbeat_at: Mapped[datetime | None]  # of a job that a command runs; workers have their own heartbeats


class ModelRunRow(Base):
    """What a job of kind `model` has done so far. The job has its task (the model), its owner and its end.

    `stage` is what it does or did last: plan, optimize, assemble, prove or done. `capture` is what the program in the
    sandbox said of the model, compressed by zlib; `plan`, what that measured. `batch_id` is the batch of the regions'
    jobs, `trials` are the decisions on what is kept, and `kept` are the names of the regions with a kernel in what is
    delivered: `files`, which are compressed JSON, and whose proof is the evaluation `evaluation_id`.
    """

    __tablename__ = "model_runs"

    id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), primary_key=True, autoincrement=False)
    stage: Mapped[str] = mapped_column(ShortText(16))
    capture: Mapped[bytes | None] = mapped_column(deferred=True)
    plan: Mapped[dict[str, Any]]
    batch_id: Mapped[int | None] = mapped_column(ForeignKey("batches.id"), index=True)
    trials: Mapped[list[Any]]
    kept: Mapped[list[Any] | None]
    files: Mapped[bytes | None] = mapped_column(deferred=True)
    evaluation_id: Mapped[str | None] = mapped_column(ShortText(64))


class ModelRegionRow(Base):
    """A region of a whole model, its task, and the job that looked for a kernel for it. `position` orders them."""

    __tablename__ = "model_regions"

    run_id: Mapped[int] = mapped_column(ForeignKey("model_runs.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(ShortText(120), primary_key=True)
    position: Mapped[int]
    kind: Mapped[str] = mapped_column(ShortText(64))
    occurrences: Mapped[int]
    eager_ms: Mapped[float]
    share: Mapped[float]
    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id"), index=True)
    job_id: Mapped[int | None] = mapped_column(ForeignKey("jobs.id"), index=True)


class WeightsRow(Base):
    """The weights of a model that a user has sent. Jobs of this user name them by their digest.

    `tensors` are the tensors of the file as compressed JSON; `WeightsPartRow` holds their bytes, of which all are there
    if `complete`. `used_at` is when they were last sent or read.
    """

    __tablename__ = "weights"

    user: Mapped[str] = mapped_column(ShortText(64), primary_key=True)
    digest: Mapped[str] = mapped_column(ShortText(64), primary_key=True)
    tensors: Mapped[bytes] = mapped_column(deferred=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    complete: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    used_at: Mapped[datetime] = mapped_column(default=utc_now)


class WeightsPartRow(Base):
    """A part of the bytes of the weights; `position` orders them."""

    __tablename__ = "weights_parts"
    __table_args__ = (ForeignKeyConstraint(["user", "digest"], ["weights.user", "weights.digest"], ondelete="CASCADE"),)

    user: Mapped[str] = mapped_column(ShortText(64), primary_key=True)
    digest: Mapped[str] = mapped_column(ShortText(64), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    data: Mapped[bytes]


class RoundRow(Base):
    """A round of a job."""

    __tablename__ = "rounds"

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    advice: Mapped[dict[str, Any] | None]
    started_at: Mapped[datetime] = mapped_column(default=utc_now)


class CandidateRow(Base):
    """A candidate of a job. `round` is the round that wrote it first."""

    __tablename__ = "candidates"
    __table_args__ = (UniqueConstraint("job_id", "hash"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    round: Mapped[int]
    hash: Mapped[str] = mapped_column(ShortText(64), index=True)
    source: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class EvaluationRow(Base):
    """An evaluation. `result` is the whole object that the evaluator returned; queries need the other columns."""

    __tablename__ = "evaluations"
    __table_args__ = (Index(None, "verdict", "platform"), Index(None, "platform", "device", "created_at"))

    id: Mapped[str] = mapped_column(ShortText(64), primary_key=True)
    candidate_id: Mapped[int] = mapped_column(ForeignKey("candidates.id", ondelete="CASCADE"), index=True)
    round: Mapped[int]
    platform: Mapped[str] = mapped_column(ShortText(32))
    device: Mapped[str]
    sandbox: Mapped[str] = mapped_column(ShortText(32))
    verdict: Mapped[str] = mapped_column(ShortText(32))
    code: Mapped[str | None] = mapped_column(ShortText(64))
    message: Mapped[str]
    tags: Mapped[list[Any]]
    speedup: Mapped[float | None]
    speedup_low: Mapped[float | None]
    speedup_high: Mapped[float | None]
    speedup_compile: Mapped[float | None]
    speedup_compile_low: Mapped[float | None]
    speedup_compile_high: Mapped[float | None]
    candidate_ms: Mapped[float | None]
    eager_ms: Mapped[float | None]
    compile_ms: Mapped[float | None]
    roofline_fraction: Mapped[float | None]
    speedup_best: Mapped[float | None]
    speedup_best_low: Mapped[float | None]
    speedup_best_high: Mapped[float | None]
    best_baseline: Mapped[str | None] = mapped_column(ShortText(32))
    noise: Mapped[float | None]  # the load of other programs meanwhile
    result: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    retracted_at: Mapped[datetime | None]


class StandingRow(Base):
    """An entry of the leaderboard: the best result of a model on a board (db/leaderboard/standings.py).

    `key` and `board` are hashes, `worth` is a `Tier` and `place` a position (db/leaderboard/rules.py). The columns from
    `speedup` on describe the model's best candidate and its job's cost; they are null if the model has none. `pooled`
    counts the evaluations whose figures were pooled (db/leaderboard/pooling.py).
    """

    __tablename__ = "standings"
    __table_args__ = (
        *(
            Index(None, "board"),
            Index(None, "model", postgresql_using="hash"),
        ),  # hash: names of any length
        Index("ix_standings_order", "task", "source_hash", "platform", "device", "sandbox", "place", "key"),
        *(Index(f"ix_standings_by_{name}", "worth", name, "key") for name in _SORTABLE),
    )

    key: Mapped[str] = mapped_column(ShortText(64), primary_key=True)
    board: Mapped[str] = mapped_column(ShortText(64))
    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id"))
    suite: Mapped[str] = mapped_column(PlainText)
    task: Mapped[str] = mapped_column(PlainText)
    source_hash: Mapped[str] = mapped_column(PlainText)
    category: Mapped[str] = mapped_column(ShortText(64))
    dtype: Mapped[str] = mapped_column(ShortText(32))
    platform: Mapped[str] = mapped_column(PlainText)
    device: Mapped[str] = mapped_column(PlainText)
    sandbox: Mapped[str] = mapped_column(PlainText)
    model: Mapped[str] = mapped_column(PlainText)
    evaluations: Mapped[int]
    passed: Mapped[int]
    worth: Mapped[int]
    place: Mapped[int]
    rank: Mapped[int | None]
    speedup: Mapped[float | None]
    speedup_low: Mapped[float | None]
    speedup_high: Mapped[float | None]
    speedup_compile: Mapped[float | None]
    speedup_compile_low: Mapped[float | None]
    speedup_compile_high: Mapped[float | None]
    candidate_ms: Mapped[float | None]
    eager_ms: Mapped[float | None]
    compile_ms: Mapped[float | None]
    roofline_fraction: Mapped[float | None]
    speedup_best: Mapped[float | None]
    speedup_best_low: Mapped[float | None]
    speedup_best_high: Mapped[float | None]
    best_baseline: Mapped[str | None] = mapped_column(ShortText(32))
    tags: Mapped[list[Any]]
    job_id: Mapped[int | None]
    candidate_hash: Mapped[str | None] = mapped_column(ShortText(64))
    evaluation_id: Mapped[str | None] = mapped_column(ShortText(64))
    evaluated_at: Mapped[datetime | None]
    cost_usd: Mapped[float | None]
    pooled: Mapped[int] = mapped_column(default=0, server_default="0")


class LlmCallRow(Base):
    """A call of a model with its messages, reply and cost. `key` identifies it in the job's ledger."""

    __tablename__ = "llm_calls"

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    round: Mapped[int]
    model: Mapped[str]
    role: Mapped[str] = mapped_column(ShortText(32))
    purpose: Mapped[str]
    messages: Mapped[list[Any]]
    reply: Mapped[str]
    prompt_tokens: Mapped[int]
    completion_tokens: Mapped[int]
    cost_usd: Mapped[float | None]
    latency_s: Mapped[float]
    key: Mapped[str | None] = mapped_column(ShortText(128))
    reasoning: Mapped[str] = mapped_column(default="", server_default="")
    reasoning_tokens: Mapped[int | None]
    tool_calls: Mapped[list[Any]] = mapped_column(default=list, server_default="[]")
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class EventRow(Base):
    """An event of a job. Sources and messages are in their own tables."""

    __tablename__ = "events"
    __table_args__ = (Index(None, "job_id", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(ShortText(32))
    round: Mapped[int]
    data: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class BatchRow(Base):
    """A batch: tasks times models times platforms times samples, as jobs. `spec` is the request."""

    __tablename__ = "batches"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(ShortText(255))
    user: Mapped[str] = mapped_column(ShortText(64))
    spec: Mapped[dict[str, Any]]
    budget_usd: Mapped[float | None]
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class WorkerRow(Base):
    """A worker process for one device of its host. `kind` is the hash of the device class."""

    __tablename__ = "workers"
    __table_args__ = (Index(None, "status"),)

    id: Mapped[str] = mapped_column(ShortText(36), primary_key=True)
    host: Mapped[str]
    pid: Mapped[int]
    started: Mapped[str]
    platform: Mapped[str] = mapped_column(ShortText(32))
    slot: Mapped[int]
    device: Mapped[str]
    kind: Mapped[str] = mapped_column(ShortText(32))
    sandbox: Mapped[str] = mapped_column(ShortText(32))
    version: Mapped[str] = mapped_column(ShortText(64))
    status: Mapped[str] = mapped_column(ShortText(16))
    started_at: Mapped[datetime] = mapped_column(default=utc_now)
    heartbeat_at: Mapped[datetime] = mapped_column(default=utc_now)
    stopped_at: Mapped[datetime | None]


class TokenRow(Base):
    """An access token. Only its hash is stored."""

    __tablename__ = "tokens"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(ShortText(255))
    user: Mapped[str] = mapped_column(ShortText(64))
    role: Mapped[str] = mapped_column(ShortText(16))
    hash: Mapped[str] = mapped_column(ShortText(64), unique=True)
    max_jobs: Mapped[int | None]
    max_usd_a_day: Mapped[float | None]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]


class IdempotencyRow(Base):
    """The subject that a request with this key created, so that a repeated request has no second effect."""

    __tablename__ = "idempotency_keys"

    user: Mapped[str] = mapped_column(ShortText(64), primary_key=True)
    key: Mapped[str] = mapped_column(ShortText(255), primary_key=True)
    request_hash: Mapped[str] = mapped_column(ShortText(64))
    subject: Mapped[str] = mapped_column(ShortText(64))
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class AuditRow(Base):
    """A line of the audit log: who changed what, and why. Rows are never changed or deleted."""

    __tablename__ = "audit_log"
    __table_args__ = (Index(None, "subject"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(default=utc_now)
    actor: Mapped[str] = mapped_column(ShortText(64))
    action: Mapped[str] = mapped_column(ShortText(64))
    subject: Mapped[str] = mapped_column(ShortText(128))
    reason: Mapped[str]
    data: Mapped[dict[str, Any]]
