"""Jobs that wait for a worker: putting them in line, taking one, and giving it back."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, case, func, insert, select, update
from sqlalchemy.orm import Session

from db.jobs.workers import SEEN
from db.locks import lock_name, now_of
from db.records import OPEN, RESUMABLE, JobStatus, JsonValue, Owner
from db.tables import JobRow, WorkerRow
from db.types import clean_json, utc_now


@dataclass(frozen=True)
class NewJob:
    """A job of a batch to be."""

    task_id: int
    platform: str
    model: str | None
    strategy: str | None
    options: Mapping[str, JsonValue]
    sample: int


def add_queued_jobs(session: Session, new: Sequence[NewJob], *, user: str, priority: int, batch_id: int) -> None:
    """Store the jobs of a batch, in the order of their turns, by one statement: others who write wait for it."""
    # Tags are by platform, and lines are locked in one order for all.
    tags = {
        name: itertools.count(next_fair_tag(session, user, priority, name))
        for name in sorted({job.platform for job in new})
    }
    common = {"kind": "optimize", "sandbox": "", "status": JobStatus.QUEUED.value, "attempt": 1, "user": user}
    common |= {"priority": priority, "batch_id": batch_id}
    rows = [
        {**common, **vars(job), "options": clean_json(job.options), "fair_tag": next(tags[job.platform])} for job in new
    ]
    if rows:
        session.execute(insert(JobRow), rows)


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
) -> int:
    """Store a job that waits for a worker; its id. Lower `priority` comes first, and in it lower tags."""
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
        fair_tag=next_fair_tag(session, user, priority, platform),
        attempt=1,
        batch_id=batch_id,
        sample=sample,
    )
    session.add(row)
    session.flush()
    return row.id


def next_fair_tag(session: Session, user: str, priority: int, platform: str) -> int:
    """The place of a user's next job in a platform's line.

    By start-time fair queuing (Goyal, Vin, Cheng 1996) with jobs of equal size.

    Each user's jobs follow one another by 1, and whoever had none begins where the line now stands: so someone with one
    job waits for one job of each other user, not for a thousand of one, and nobody saves up turns by staying away.
    """
    lock_name(session, "line", priority, platform)
    of_priority = select(func.max(JobRow.fair_tag)).where(JobRow.priority == priority, JobRow.platform == platform)
    started = JobRow.started_at.is_not(None)  # who ended without it was cancelled in line and took no turn
    waits = JobRow.status == JobStatus.QUEUED.value
    own = session.scalar(of_priority.where(JobRow.user == user, started | waits)) or 0
    begun = session.scalar(of_priority.where(started)) or 0
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
            heartbeat_at=now_of(session) if worker_id is None else None,
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

    False if it is neither. A request to cancel it lapses with the first; the second is cancelled by it.
    """
    return bool(_requeue(session, JobRow.id == job_id, worker_id=worker_id))


def requeue_batch(session: Session, batch_id: int, *, final: Sequence[str]) -> int:
    """As `requeue_job`, all jobs of a batch that ended before they were done, but for those with a reason in `final`;
    how many."""
    reason = func.coalesce(JobRow.stop_reason, "")
    return _requeue(session, (JobRow.batch_id == batch_id) & reason.not_in(final), worker_id=None)


def _requeue(session: Session, which: ColumnElement[bool], *, worker_id: str | None) -> int:
    again: dict[str, object] = {"status": JobStatus.QUEUED.value, "stop_reason": None, "finished_at": None}
    where: ColumnElement[bool]
    if worker_id is None:
        where = JobRow.status.in_(RESUMABLE)
        again["cancel_requested"] = False
    else:
        where = (JobRow.status == JobStatus.RUNNING.value) & (JobRow.worker_id == worker_id)
        cancelled = {"status": JobStatus.CANCELLED.value, "stop_reason": "cancelled", "finished_at": utc_now()}
        again = {name: case((JobRow.cancel_requested, cancelled[name]), else_=again[name]) for name in again}
    changed = session.execute(
        update(JobRow)
        .where(which, where)
        .values(
            attempt=JobRow.attempt + 1,
            worker_id=None,
            owner_host=None,
            owner_pid=None,
            owner_started=None,
            error=None,
            **again,
        )
        .returning(JobRow.id)
    ).all()
    return len(changed)


def renew_attempt(session: Session, job_id: int, attempt: int) -> bool:
    """Have a job that waits in this attempt wait in the next one, so that it can be put in line anew; False if it does
    not wait in this one."""
    waits = (JobRow.id == job_id, JobRow.status == JobStatus.QUEUED.value, JobRow.attempt == attempt)
    changed = session.execute(update(JobRow).where(*waits).values(attempt=attempt + 1).returning(JobRow.id)).all()
    return bool(changed)


def fail_queued(session: Session, job_id: int, error: str) -> bool:
    """End a job that waits and can never be run; False if it does not wait."""
    changed = session.execute(
        update(JobRow)
        .where(JobRow.id == job_id, JobRow.status == JobStatus.QUEUED.value)
        .values(status=JobStatus.FAILED.value, stop_reason="error", error=error, finished_at=utc_now())
        .returning(JobRow.id)
    ).all()
    return bool(changed)


def list_waiting(session: Session, *, after: int = 0) -> Sequence[tuple[int, int]]:
    """Id and attempt of the jobs that wait, in the order of their turns; `after`: only those with a higher id."""
    query = select(JobRow.id, JobRow.attempt).where(JobRow.status == JobStatus.QUEUED.value, JobRow.id > after)
    found = session.execute(query.order_by(JobRow.priority, JobRow.fair_tag, JobRow.id))
    return [(row.id, row.attempt) for row in found]


def list_stranded(session: Session) -> Sequence[tuple[int, str]]:
    """The jobs that a worker ran which has ended or was given up, and that worker."""
    seen = select(WorkerRow.id).where(WorkerRow.status.in_(SEEN))
    query = select(JobRow.id, JobRow.worker_id).where(
        JobRow.status == JobStatus.RUNNING.value, JobRow.worker_id.is_not(None), JobRow.worker_id.not_in(seen)
    )
    return [(row.id, row.worker_id) for row in session.execute(query.order_by(JobRow.id))]


def list_run_by(session: Session, worker_id: str) -> Sequence[int]:
    """The jobs that a worker runs, or ran when it was last heard of."""
    query = select(JobRow.id).where(JobRow.worker_id == worker_id, JobRow.status == JobStatus.RUNNING.value)
    return list(session.scalars(query.order_by(JobRow.id)))


def count_open(session: Session, user: str) -> int:
    """How many jobs of a user wait or run."""
    return session.scalar(select(func.count()).where(JobRow.user == user, JobRow.status.in_(OPEN))) or 0
