"""Jobs in the store: who works on what, and how it ended."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import Bundle, Session

from db.errors import NotInStore
from db.evaluations.tasks import HEAD, task_head, task_record
from db.leaderboard.update import follow_cost
from db.locks import lock_job, now_of
from db.records import RESUMABLE, JobRecord, JobStatus, JsonValue, Owner, TaskHead
from db.tables import EvaluationRow, JobRow, TaskRow
from db.types import clean_json, utc_now


def add_job(
    session: Session,
    *,
    task_id: int,
    kind: str,
    platform: str,
    sandbox: str,
    owner: Owner,
    model: str | None = None,
    strategy: str | None = None,
    options: Mapping[str, JsonValue] | None = None,
) -> int:
    """Store a job that `owner` runs from now on; its id."""
    row = JobRow(
        task_id=task_id,
        kind=kind,
        platform=platform,
        sandbox=sandbox,
        model=model,
        strategy=strategy,
        options=clean_json(options or {}),
        status=JobStatus.RUNNING.value,
        started_at=utc_now(),
        heartbeat_at=now_of(session),
        **_owner_columns(owner),
    )
    session.add(row)
    session.flush()
    return row.id


def get_job(session: Session, job_id: int) -> JobRecord:
    """The job with this id.

    Raises:
        NotInStore: there is none.
    """
    row = session.execute(select(JobRow, TaskRow).join(TaskRow).where(JobRow.id == job_id)).one_or_none()
    if row is None:
        raise NotInStore(f"job {job_id} is not in the store; `kernelwright jobs list` shows those that are")
    return _record(row[0], task_record(row[1]))


def list_jobs(
    session: Session,
    *,
    kind: str | None = None,
    status: JobStatus | None = None,
    user: str | None = None,
    batch_id: int | None = None,
    model: str | None = None,
    task: str | None = None,
    source_hash: str | None = None,
    before: int | None = None,
    limit: int | None = None,
) -> list[JobRecord]:
    """Jobs, newest first; `task` is `suite/name`, `source_hash` its very source, `before`: only those with a lower id.
    Their tasks come without sources.
    """
    task_columns: Bundle[Any] = Bundle("task", *HEAD)
    query = select(JobRow, task_columns).join(TaskRow).order_by(JobRow.id.desc())
    if kind is not None:
        query = query.where(JobRow.kind == kind)
    if status is not None:
        query = query.where(JobRow.status == status.value)
    if user is not None:
        query = query.where(JobRow.user == user)
    if batch_id is not None:
        query = query.where(JobRow.batch_id == batch_id)
    if model is not None:
        query = query.where(JobRow.model == model)
    if task is not None:
        suite, _, name = task.partition("/")
        query = query.where(TaskRow.suite == suite, TaskRow.name == name)
    if source_hash is not None:
        query = query.where(TaskRow.source_hash == source_hash)
    if before is not None:
        query = query.where(JobRow.id < before)
    if limit is not None:
        query = query.limit(limit)
    return [_record(job, task_head(task)) for job, task in session.execute(query)]


def claim_job(session: Session, job_id: int, owner: Owner, *, sandbox: str) -> bool:
    """Make `owner` run a job that ended before it was done; False if it did not, or someone was faster."""
    return _change(
        session,
        JobRow.id == job_id,
        JobRow.status.in_(RESUMABLE),
        status=JobStatus.RUNNING.value,
        sandbox=sandbox,
        worker_id=None,
        stop_reason=None,
        error=None,
        cancel_requested=False,
        finished_at=None,
        heartbeat_at=now_of(session),
        **_owner_columns(owner),
    )


def finish_job(
    session: Session,
    job_id: int,
    owner: Owner,
    *,
    status: JobStatus,
    stop_reason: str | None = None,
    error: str | None = None,
) -> bool:
    """End a job that `owner` runs; False if it is not his any more."""
    return _change(
        session,
        JobRow.id == job_id,
        JobRow.status == JobStatus.RUNNING.value,
        *_owned_by(owner),
        status=status.value,
        stop_reason=stop_reason,
        error=error,
        finished_at=utc_now(),
    )


def set_rounds_done(session: Session, job_id: int, rounds_done: int) -> None:
    """Keep the number of rounds that a job finished."""
    _change(session, JobRow.id == job_id, rounds_done=rounds_done)


def count_round(session: Session, job_id: int) -> None:
    """Note that a job finished one more round."""
    _change(session, JobRow.id == job_id, rounds_done=JobRow.rounds_done + 1)


def set_spent(session: Session, job_id: int, *, cost_usd: float, tokens: int) -> None:
    """Keep what a job's LLM calls took, with the job and on the leaderboard."""
    _change(session, JobRow.id == job_id, cost_usd=cost_usd, tokens=tokens)
    follow_cost(session, job_id)


def is_run_by(session: Session, job_id: int, owner: Owner) -> bool:
    """Whether `owner` runs this job now; he does so until the transaction ends, which must be one that writes."""
    mine = (JobRow.id == job_id, JobRow.status == JobStatus.RUNNING.value, *_owned_by(owner))
    return session.scalar(select(JobRow.id).where(*mine).with_for_update()) is not None


def set_options(session: Session, job_id: int, **options: JsonValue) -> None:
    """Keep more of what a job must find again when it is taken up."""
    row = session.get_one(JobRow, job_id)
    row.options = {**row.options, **clean_json(options)}


def set_unsettled(session: Session, job_id: int, unsettled_usd: float) -> None:
    """Keep the most that a job's calls may have cost whose reply was lost."""
    _change(session, JobRow.id == job_id, unsettled_usd=unsettled_usd)


def set_best(session: Session, job_id: int, evaluation_id: str) -> bool:
    """Remember the evaluation of a job's best candidate so far; False, and nothing is changed, if it was taken back."""
    stands = select(EvaluationRow.id).where(EvaluationRow.id == evaluation_id, EvaluationRow.retracted_at.is_(None))
    return _change(session, JobRow.id == job_id, stands.exists(), best_evaluation_id=evaluation_id)


def beat(session: Session, job_id: int, owner: Owner) -> bool:
    """Note that a command that runs a job is still there; False if others took it for dead."""
    # Who ended it in good order is the owner still; only what others took for dead, or went on with, is not his.
    is_his = (JobRow.id == job_id, *_owned_by(owner), JobRow.status != JobStatus.INTERRUPTED.value)
    return _change(session, *is_his, heartbeat_at=now_of(session))


def mark_interrupted(session: Session, job_id: int, owner: Owner, heard_at: datetime | None = None) -> bool:
    """Say that `owner` died while he ran this job, or was last heard of at `heard_at`; False if he was since then, or
    the job went on otherwise."""
    if heard_at is not None:
        lock_job(session, job_id)
        if session.scalar(select(JobRow.heartbeat_at).where(JobRow.id == job_id)) != heard_at:
            return False
    return finish_job(session, job_id, owner, status=JobStatus.INTERRUPTED, stop_reason="interrupted")


def request_cancel(session: Session, job_id: int) -> JobStatus:
    """Ask the owner of a running job to stop, or cancel one that nobody runs; the status that the job has now.

    Raises:
        NotInStore: there is no such job.
    """
    lock_job(session, job_id)
    waiting = (JobStatus.QUEUED.value, JobStatus.INTERRUPTED.value)
    if _change(
        session,
        JobRow.id == job_id,
        JobRow.status.in_(waiting),
        status=JobStatus.CANCELLED.value,
        stop_reason="cancelled",
        finished_at=utc_now(),
    ):
        return JobStatus.CANCELLED
    _change(session, JobRow.id == job_id, JobRow.status == JobStatus.RUNNING.value, cancel_requested=True)
    return get_job(session, job_id).status


def cancel_requested(session: Session, job_id: int) -> bool:
    """Whether someone asked this job to stop."""
    return bool(session.scalar(select(JobRow.cancel_requested).where(JobRow.id == job_id)))


def _change(session: Session, *where: ColumnElement[bool], **values: object) -> bool:
    """Update by one statement, so that two processes cannot both succeed; whether a row was changed."""
    changed = session.execute(update(JobRow).where(*where).values(**values).returning(JobRow.id)).all()
    return bool(changed)


def _owned_by(owner: Owner) -> Sequence[ColumnElement[bool]]:
    return (
        JobRow.owner_host == owner.host,
        JobRow.owner_pid == owner.pid,
        JobRow.owner_started == owner.started,
    )


def _owner_columns(owner: Owner) -> dict[str, str | int]:
    return {"owner_host": owner.host, "owner_pid": owner.pid, "owner_started": owner.started}


def _record(row: JobRow, task: TaskHead) -> JobRecord:
    owner = None
    if row.owner_host is not None and row.owner_pid is not None and row.owner_started is not None:
        owner = Owner(row.owner_host, row.owner_pid, row.owner_started)
    return JobRecord(
        id=row.id,
        task=task,
        kind=row.kind,
        platform=row.platform,
        sandbox=row.sandbox,
        model=row.model,
        strategy=row.strategy,
        options=row.options if isinstance(row.options, dict) else {},  # what a hand wrote may be anything
        status=JobStatus(row.status),
        stop_reason=row.stop_reason,
        error=row.error,
        cancel_requested=row.cancel_requested,
        owner=owner,
        rounds_done=row.rounds_done,
        cost_usd=row.cost_usd,
        tokens=row.tokens,
        best_evaluation_id=row.best_evaluation_id,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        user=row.user,
        priority=row.priority,
        fair_tag=row.fair_tag,
        attempt=row.attempt,
        worker_id=row.worker_id,
        batch_id=row.batch_id,
        sample=row.sample,
        unsettled_usd=row.unsettled_usd,
        heartbeat_at=row.heartbeat_at,
    )
