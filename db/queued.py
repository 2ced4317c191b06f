"""Jobs that wait for a worker: putting them in line, taking one, and giving it back."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from db.locks import lock_name
from db.records import JobStatus, JsonValue, Owner
from db.tables import JobRow
from db.types import clean_json, utc_now

RESUMABLE = (JobStatus.CANCELLED, JobStatus.INTERRUPTED, JobStatus.FAILED)
"""What a job may be to be queued once more."""


def add_queued_job(
    session: Session,
    *,
    task_id: int,
    kind: str,
    platform: str,
    model: str | None,
    strategy: str | None,
    options: Mapping[str, JsonValue],
    user: str,
    priority: int = 0,
    batch_id: int | None = None,
    sample: int | None = None,
    fair_tag: int | None = None,
) -> int:
    """Store a job that waits for a worker; its id. Lower `priority` comes first, and in it lower tags.

    `fair_tag` is the next one unless whoever stores many jobs has counted on by himself.
    """
    row = JobRow(
        task_id=task_id,
        kind=kind,
        platform=platform,
        sandbox="",  # the worker's, once there is one
        model=model,
        strategy=strategy,
        options=clean_json(options),
        status=JobStatus.QUEUED.value,
        user=user,
        priority=priority,
        fair_tag=next_fair_tag(session, user, priority) if fair_tag is None else fair_tag,
        attempt=1,
        batch_id=batch_id,
        sample=sample,
    )
    session.add(row)
    session.flush()
    return row.id


def next_fair_tag(session: Session, user: str, priority: int) -> int:
    """The place in line of a user's next job: start-time fair queuing (Goyal, Vin, Cheng 1996) with jobs of equal size.

    Each user's jobs follow one another by 1, and whoever had none begins where the line now stands: so someone with one
    job waits for one job of each other user, not for a thousand of one, and nobody saves up turns by staying away.
    """
    lock_name(session, "line", priority)
    of_priority = select(func.max(JobRow.fair_tag)).where(JobRow.priority == priority)
    own = session.scalar(of_priority.where(JobRow.user == user)) or 0
    begun = session.scalar(of_priority.where(JobRow.status != JobStatus.QUEUED.value)) or 0
    return max(own, begun) + 1


def take_job(session: Session, job_id: int, attempt: int, owner: Owner, *, worker_id: str | None, sandbox: str) -> bool:
    """Make `owner`, a worker or (None) a command, run a job that waits in this attempt; False if it waits no more."""
    changed = session.execute(
        update(JobRow)
        .where(JobRow.id == job_id, JobRow.status == JobStatus.QUEUED.value, JobRow.attempt == attempt)
        .values(
            status=JobStatus.RUNNING.value,
            sandbox=sandbox,
            worker_id=worker_id,
            owner_host=owner.host,
            owner_pid=owner.pid,
            owner_started=owner.started,
            started_at=func.coalesce(JobRow.started_at, utc_now()),
            stop_reason=None,
            error=None,
            finished_at=None,
        )
        .returning(JobRow.id)
    ).all()
    return bool(changed)


def requeue_job(session: Session, job_id: int, *, worker_id: str | None = None) -> bool:
    """Put a job back in line, at its old place: one that ended before it was done, or one that `worker_id` ran.

    False if it is neither. A request to cancel it lapses with the first and stays with the second.
    """
    ended = JobRow.status.in_([status.value for status in RESUMABLE])
    ran = (JobRow.status == JobStatus.RUNNING.value) & (JobRow.worker_id == worker_id)
    values: dict[str, object] = {} if worker_id is not None else {"cancel_requested": False}
    changed = session.execute(
        update(JobRow)
        .where(JobRow.id == job_id, ended if worker_id is None else ran)
        .values(
            status=JobStatus.QUEUED.value,
            attempt=JobRow.attempt + 1,
            worker_id=None,
            owner_host=None,
            owner_pid=None,
            owner_started=None,
            stop_reason=None,
            error=None,
            finished_at=None,
            **values,
        )
        .returning(JobRow.id)
    ).all()
    return bool(changed)


def list_waiting(session: Session, *, before: datetime, limit: int = 1000) -> Sequence[tuple[int, int]]:
    """Id and attempt of jobs that have waited since before this moment, first come first."""
    query = select(JobRow.id, JobRow.attempt).where(JobRow.status == JobStatus.QUEUED.value, JobRow.created_at < before)
    return [(row.id, row.attempt) for row in session.execute(query.order_by(JobRow.id).limit(limit))]


def list_run_by(session: Session, worker_id: str) -> Sequence[int]:
    """The jobs that a worker runs, or ran when it was last heard of."""
    query = select(JobRow.id).where(JobRow.worker_id == worker_id, JobRow.status == JobStatus.RUNNING.value)
    return list(session.scalars(query.order_by(JobRow.id)))


def count_open(session: Session, user: str) -> int:
    """How many jobs of a user wait or run."""
    open_now = (JobStatus.QUEUED.value, JobStatus.RUNNING.value)
    return session.scalar(select(func.count()).where(JobRow.user == user, JobRow.status.in_(open_now))) or 0
