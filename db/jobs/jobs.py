"""Jobs in the store: their owner, their progress and their end."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.orm import Bundle, Session

from db.errors import NotInStore
from db.evaluations.tasks import HEAD_COLUMNS, task_head, task_record
from db.jobs import batches
from db.leaderboard.standings import update_cost
from db.locks import database_now, lock_job
from db.records import RESUMABLE, JobRecord, JobState, JobStatus, JsonValue, Owner, TaskHead
from db.tables import EvaluationRow, JobRow, TaskRow
from db.types import clean_json, utc_now

_JOBS_A_QUERY = 200


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
    """Store a job that `owner` runs.

    Returns:
        The job's id.
    """
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
        heartbeat_at=database_now(session),
        **_owner_columns(owner),
    )
    session.add(row)
    session.flush()
    return row.id


def get_job(session: Session, job_id: int) -> JobRecord:
    """The job with this id.

    Raises:
        NotInStore: There is no such job.
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
    """Jobs, newest first, with their tasks but without the tasks' sources. Each argument but None is a condition.

    Args:
        session: A transaction.
        kind: `optimize`, `evaluate` or `model`.
        status: The status.
        user: The user who submitted the job.
        batch_id: The batch.
        model: The model.
        task: The task as `suite/name`, with any source.
        source_hash: The hash of the task's source.
        before: Only jobs with a lower id.
        limit: At most so many.
    """
    task_columns: Bundle[Any] = Bundle("task", *HEAD_COLUMNS)
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


def restart_job(session: Session, job_id: int, owner: Owner, *, sandbox: str, done: bool = False) -> bool:
    """Let `owner` run a job that can be resumed; with `done` also one that is done and was given larger limits.

    Returns:
        False if the job cannot be resumed, or another process was faster.
    """
    return _update(
        session,
        JobRow.id == job_id,
        JobRow.status.in_((*RESUMABLE, JobStatus.DONE) if done else RESUMABLE),
        status=JobStatus.RUNNING.value,
        sandbox=sandbox,
        worker_id=None,
        stop_reason=None,
        error=None,
        cancel_requested=False,
        finished_at=None,
        heartbeat_at=database_now(session),
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
    """Set the end of a job that `owner` runs.

    Returns:
        False if the job has another owner or has ended.
    """
    return _update(
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
    """Store the number of rounds that a job has finished."""
    _update(session, JobRow.id == job_id, rounds_done=rounds_done)


def add_finished_round(session: Session, job_id: int) -> None:
    """Add 1 to the number of rounds that a job has finished."""
    _update(session, JobRow.id == job_id, rounds_done=JobRow.rounds_done + 1)


def set_spent(session: Session, job_id: int, *, cost_usd: float, tokens: int) -> None:
    """Store what a job's LLM calls have cost, in the job and on the leaderboard."""
    _update(session, JobRow.id == job_id, cost_usd=cost_usd, tokens=tokens)
    update_cost(session, job_id)


def lock_if_owned(session: Session, job_id: int, owner: Owner) -> bool:
    """Lock a job if `owner` runs it, so that it stays the owner's until the (writing) transaction ends.

    Returns:
        Whether `owner` runs the job.
    """
    owned = (JobRow.id == job_id, JobRow.status == JobStatus.RUNNING.value, *_owned_by(owner))
    return session.scalar(select(JobRow.id).where(*owned).with_for_update()) is not None


def update_options(session: Session, job_id: int, **options: JsonValue) -> None:
    """Add to a job's options, so that the job has the same when it is resumed."""
    row = session.get_one(JobRow, job_id)
    row.options = {**row.options, **clean_json(options)}


def set_unsettled(session: Session, job_id: int, unsettled_usd: float) -> None:
    """Store the upper bound of what LLM calls without a reply may have cost."""
    _update(session, JobRow.id == job_id, unsettled_usd=unsettled_usd)


def set_best(session: Session, job_id: int, evaluation_id: str) -> bool:
    """Store the evaluation of a job's best candidate so far.

    Returns:
        False, with nothing changed, if the evaluation was retracted.
    """
    not_retracted = select(EvaluationRow.id).where(
        EvaluationRow.id == evaluation_id, EvaluationRow.retracted_at.is_(None)
    )
    return _update(session, JobRow.id == job_id, not_retracted.exists(), best_evaluation_id=evaluation_id)


def record_heartbeat(session: Session, job_id: int, owner: Owner) -> bool:
    """Store the heartbeat of a command that runs a job.

    Returns:
        False if another process has taken the command for dead or runs the job now. A job that its owner has ended
        still counts as owned.
    """
    owned = (JobRow.id == job_id, *_owned_by(owner), JobRow.status != JobStatus.INTERRUPTED.value)
    return _update(session, *owned, heartbeat_at=database_now(session))


def mark_interrupted(session: Session, job_id: int, owner: Owner, last_heartbeat_at: datetime | None = None) -> bool:
    """End a job whose owner has died.

    Args:
        session: A transaction that writes.
        job_id: The job.
        owner: The owner that is taken for dead.
        last_heartbeat_at: The heartbeat by which it was judged. None if the process is known to be gone.

    Returns:
        False if the owner sent another heartbeat since, or does not run the job any more.
    """
    if last_heartbeat_at is not None:
        lock_job(session, job_id)
        if session.scalar(select(JobRow.heartbeat_at).where(JobRow.id == job_id)) != last_heartbeat_at:
            return False
    return finish_job(session, job_id, owner, status=JobStatus.INTERRUPTED, stop_reason="interrupted")


def request_cancel(session: Session, job_id: int) -> JobStatus:
    """Ask the owner of a running job to stop, or cancel a job that is not running. So too the jobs of its regions.

    Returns:
        The job's status afterwards.

    Raises:
        NotInStore: There is no such job.
    """
    lock_job(session, job_id)
    batches.cancel_regions(session, job_id)
    not_running = (JobStatus.QUEUED.value, JobStatus.INTERRUPTED.value)
    if _update(
        session,
        JobRow.id == job_id,
        JobRow.status.in_(not_running),
        status=JobStatus.CANCELLED.value,
        stop_reason="cancelled",
        finished_at=utc_now(),
    ):
        return JobStatus.CANCELLED
    _update(session, JobRow.id == job_id, JobRow.status == JobStatus.RUNNING.value, cancel_requested=True)
    return get_job(session, job_id).status


def cancel_requested(session: Session, job_id: int) -> bool:
    """Whether the job was asked to stop."""
    return bool(session.scalar(select(JobRow.cancel_requested).where(JobRow.id == job_id)))


def states(session: Session, job_ids: Sequence[int]) -> dict[int, JobState]:
    """The states of jobs by id. Read before a job's events they guarantee that an ended job's events are complete."""
    columns = tuple(getattr(JobRow, each.name) for each in fields(JobState))
    found: dict[int, JobState] = {}
    for begin in range(0, len(job_ids), _JOBS_A_QUERY):
        query = select(JobRow.id, *columns).where(JobRow.id.in_(job_ids[begin : begin + _JOBS_A_QUERY]))
        for row in session.execute(query):
            found[row[0]] = JobState(JobStatus(row[1]), *row[2:])
    return found


def running_by_worker(session: Session) -> dict[str, tuple[int, ...]]:
    """The ids of the jobs that each worker runs, in order."""
    query = select(JobRow.worker_id, JobRow.id).where(
        JobRow.status == JobStatus.RUNNING.value, JobRow.worker_id.is_not(None)
    )
    found: dict[str, tuple[int, ...]] = {}
    for worker, job in session.execute(query.order_by(JobRow.id)):
        found[str(worker)] = (*found.get(str(worker), ()), int(job))
    return found


def count_by_status(session: Session) -> dict[str, int]:
    """The numbers of `optimize` jobs by status."""
    query = select(JobRow.status, func.count()).where(JobRow.kind == "optimize").group_by(JobRow.status)
    return {str(status): int(count) for status, count in session.execute(query)}


def _update(session: Session, *where: ColumnElement[bool], **values: object) -> bool:
    """Update by one statement, so that only one of two processes succeeds. Returns whether a row was updated."""
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
        options=row.options
        if isinstance(row.options, dict)
        else {},  # a row written by other programs may hold anything
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
