"""Batches in the store: many jobs that were asked for at once, and what became of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from db.errors import NotInStore
from db.jobs.job_queue import requeue_batch
from db.leaderboard.rebuild import FIGURES
from db.locks import lock_jobs
from db.records import JobCost, JobStatus, JsonValue
from db.tables import BatchRow, CandidateRow, EvaluationRow, JobRow
from db.types import clean_json, utc_now


@dataclass(frozen=True)
class BatchRecord:
    """A batch; `spec` is what was asked for, with what was refused of it. Money in US dollars."""

    id: int
    name: str
    user: str
    spec: Mapping[str, JsonValue]
    budget_usd: float | None
    cancel_requested: bool
    created_at: datetime


@dataclass(frozen=True)
class BestEvaluation:
    """The figures of the candidate that a job delivered."""

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


def add_batch(
    session: Session, *, name: str, user: str, spec: Mapping[str, JsonValue], budget_usd: float | None
) -> int:
    """Store a batch; its id. Its jobs are added in the same transaction."""
    row = BatchRow(name=name, user=user, spec=clean_json(spec), budget_usd=budget_usd)
    session.add(row)
    session.flush()
    return row.id


def get_batch(session: Session, batch_id: int, *, lock: bool = False) -> BatchRecord:
    """The batch with this id; `lock` keeps others from locking it until the transaction ends.

    (SQLite has one writer at a time anyway, and knows no such lock.)

    Raises:
        NotInStore: there is none.
    """
    query = select(BatchRow).where(BatchRow.id == batch_id)
    row = session.scalars(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise NotInStore(f"batch {batch_id} is not in the store; `kernelwright batch list` shows those that are")
    return _record(row)


def list_batches(
    session: Session, *, user: str | None = None, before: int | None = None, limit: int | None = None
) -> list[BatchRecord]:
    """Batches, newest first; `before`: only those with a lower id."""
    query = select(BatchRow).order_by(BatchRow.id.desc())
    if user is not None:
        query = query.where(BatchRow.user == user)
    if before is not None:
        query = query.where(BatchRow.id < before)
    return [_record(row) for row in session.scalars(query if limit is None else query.limit(limit))]


def set_budget(session: Session, batch_id: int, budget_usd: float) -> None:
    """Allow a batch another total."""
    session.execute(update(BatchRow).where(BatchRow.id == batch_id).values(budget_usd=budget_usd))


def set_cancelled(session: Session, batch_id: int, cancelled: bool) -> None:
    """Note whether a batch was told to stop."""
    session.execute(update(BatchRow).where(BatchRow.id == batch_id).values(cancel_requested=cancelled))


def cancel_jobs(session: Session, batch_id: int) -> int:
    """Cancel a batch's jobs that nobody runs and ask the others to stop; how many that concerns."""
    lock_jobs(session, batch_id)  # or one that goes back in line between the two statements would escape
    waiting = (JobStatus.QUEUED.value, JobStatus.INTERRUPTED.value)
    of_batch = JobRow.batch_id == batch_id
    ended = session.execute(
        update(JobRow)
        .where(of_batch, JobRow.status.in_(waiting))
        .values(status=JobStatus.CANCELLED.value, stop_reason="cancelled", finished_at=utc_now())
        .returning(JobRow.id)
    ).all()
    asked = session.execute(
        update(JobRow)
        .where(of_batch, JobRow.status == JobStatus.RUNNING.value)
        .values(cancel_requested=True)
        .returning(JobRow.id)
    ).all()
    return len(ended) + len(asked)


def count_stopping(session: Session, batch_id: int) -> int:
    """How many jobs of a batch were told to stop and still run; it stays so until the transaction ends."""
    lock_jobs(session, batch_id)
    stopping = (JobRow.status == JobStatus.RUNNING.value, JobRow.cancel_requested)
    return session.scalar(select(func.count()).where(JobRow.batch_id == batch_id, *stopping)) or 0


def requeue_jobs(session: Session, batch_id: int, *, final: Sequence[str]) -> int:
    """Put a batch's jobs that ended before they were done back in line, but for those with a reason in `final`."""
    lock_jobs(session, batch_id)
    return requeue_batch(session, batch_id, final=final)


def next_waiting(session: Session, batch_id: int, *, but: Sequence[int] = ()) -> int | None:
    """The first of a batch's jobs in line, leaving out those in `but`."""
    query = select(JobRow.id).where(
        JobRow.batch_id == batch_id, JobRow.status == JobStatus.QUEUED.value, JobRow.id.not_in(but)
    )
    return session.scalar(query.order_by(JobRow.priority, JobRow.fair_tag, JobRow.id).limit(1))


def count_jobs(session: Session, batch_ids: Sequence[int]) -> dict[int, dict[JobStatus, int]]:
    """How many jobs of each batch stand where."""
    counts: dict[int, dict[JobStatus, int]] = {batch_id: {} for batch_id in batch_ids}
    query = (
        select(JobRow.batch_id, JobRow.status, func.count())
        .where(JobRow.batch_id.in_(batch_ids))
        .group_by(JobRow.batch_id, JobRow.status)
    )
    for batch_id, status, count in session.execute(query):
        counts[int(batch_id or 0)][JobStatus(status)] = count
    return counts


def spent_usd(session: Session, batch_ids: Sequence[int]) -> dict[int, float]:
    """What the jobs of each batch were billed so far, without calls whose reply was lost."""
    query = (
        select(JobRow.batch_id, func.sum(JobRow.cost_usd))
        .where(JobRow.batch_id.in_(batch_ids))
        .group_by(JobRow.batch_id)
    )
    found: dict[int, float] = dict.fromkeys(batch_ids, 0.0)
    for batch_id, usd in session.execute(query):
        found[int(batch_id or 0)] = float(usd or 0.0)
    return found


def job_costs(session: Session, batch_id: int) -> list[JobCost]:
    """What each job of a batch cost."""
    query = select(*(getattr(JobRow, field.name) for field in fields(JobCost))).where(JobRow.batch_id == batch_id)
    return [JobCost(row[0], JobStatus(row[1]), *row[2:]) for row in session.execute(query.order_by(JobRow.id))]


def best_evaluations(session: Session, batch_id: int) -> dict[int, BestEvaluation]:
    """What each job of a batch delivered, by job; nothing for those without a candidate that passed."""
    columns = [getattr(EvaluationRow, name) for name in _FIGURES]
    query = (
        select(JobRow.id, CandidateRow.hash, EvaluationRow.id, EvaluationRow.retracted_at, EvaluationRow.tags, *columns)
        .join(EvaluationRow, EvaluationRow.id == JobRow.best_evaluation_id)
        .join(CandidateRow, CandidateRow.id == EvaluationRow.candidate_id)
        .where(JobRow.batch_id == batch_id)
    )
    return {
        job_id: BestEvaluation(
            id=evaluation_id,
            candidate_hash=candidate,
            tags=tuple(tags),
            retracted=retracted is not None,
            **dict(zip(_FIGURES, values, strict=True)),
        )
        for job_id, candidate, evaluation_id, retracted, tags, *values in session.execute(query)
    }


def verdicts(session: Session, batch_id: int) -> dict[int, list[str]]:
    """The verdicts on each job's candidates, oldest first."""
    query = (
        select(JobRow.id, EvaluationRow.verdict)
        .join(CandidateRow, CandidateRow.job_id == JobRow.id)
        .join(EvaluationRow, EvaluationRow.candidate_id == CandidateRow.id)
        .where(JobRow.batch_id == batch_id)
        .order_by(EvaluationRow.created_at, EvaluationRow.id)
    )
    found: dict[int, list[str]] = {}
    for job_id, verdict in session.execute(query):
        found.setdefault(job_id, []).append(verdict)
    return found


_FIGURES = ("verdict", "device", "sandbox", *FIGURES)


def _record(row: BatchRow) -> BatchRecord:
    return BatchRecord(row.id, row.name, row.user, row.spec, row.budget_usd, row.cancel_requested, row.created_at)
