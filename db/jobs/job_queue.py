"""The queue of jobs: adding jobs, taking one to run it, and putting it back."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, case, func, insert, or_, select, update
from sqlalchemy.orm import Session

from db.jobs import model_runs
from db.jobs.workers import LIVE
from db.locks import database_now, lock_name
from db.records import OPEN, RESUMABLE, JobStatus, JsonValue, Owner
from db.tables import JobRow, WorkerRow
from db.types import clean_json, utc_now


@dataclass(frozen=True)
class NewJob:
    """A job that is to be added for a batch."""

    task_id: int
    platform: str
    model: str | None
    strategy: str | None
    options: Mapping[str, JsonValue]
    sample: int
    kind: str = "optimize"


def add_queued_jobs(session: Session, new: Sequence[NewJob], *, user: str, priority: int, batch_id: int) -> None:
    """Store the jobs of a batch, in the order in which they are to run, by one statement: other writers wait for it."""
    # Platforms are sorted, so that all processes lock the queues in the same order.
    tags = {
        name: itertools.count(next_fair_tag(session, user, priority, name))
        for name in sorted({job.platform for job in new})
    }
    common = {"sandbox": "", "status": JobStatus.QUEUED.value, "attempt": 1, "user": user}
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
    """Store a queued job.

    Jobs with a lower `priority` number run first. Within a priority, jobs with lower fair tags do.

    Returns:
        The job's id.
    """
    row = JobRow(
        task_id=task_id,
        kind=kind,
        platform=platform,
        sandbox="",  # set when a worker takes the job
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
    """The fair tag of a user's next job in the queue of a platform.

    Start-time fair queuing (Goyal, Vin, Cheng 1996) with jobs of equal size: tag = 1 + max(last tag of the user's jobs,
    highest tag of a started job). A user with one job therefore waits for one job of each other user, not for all jobs
    of a user with a thousand, and a user who submits nothing for a while gains no priority by it.
    """
    lock_name(session, "line", priority, platform)
    of_priority = select(func.max(JobRow.fair_tag)).where(JobRow.priority == priority, JobRow.platform == platform)
    started = JobRow.started_at.is_not(None)  # a job that was cancelled in the queue took no turn
    queued = JobRow.status == JobStatus.QUEUED.value
    own = session.scalar(of_priority.where(JobRow.user == user, started | queued)) or 0
    highest_started = session.scalar(of_priority.where(started)) or 0
    return max(own, highest_started) + 1


def take_job(session: Session, job_id: int, attempt: int, owner: Owner, *, worker_id: str | None, sandbox: str) -> bool:
    """Let `owner` run a queued job.

    Args:
        session: A transaction that writes.
        job_id: The job.
        attempt: The attempt in which the job must be queued.
        owner: The process.
        worker_id: The worker that the process is, or None for a command.
        sandbox: The name of the sandbox.

    Returns:
        False if the job is not queued in this attempt any more.
    """
    changed = session.execute(
        update(JobRow)
        .where(JobRow.id == job_id, JobRow.status == JobStatus.QUEUED.value, JobRow.attempt == attempt)
        .values(
            status=JobStatus.RUNNING.value,
            sandbox=sandbox,
            worker_id=worker_id,
            heartbeat_at=database_now(session) if worker_id is None else None,
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


def requeue_job(session: Session, job_id: int, *, worker_id: str | None = None, done: bool = False) -> bool:
    """Put a job back into the queue at its old position.

    Without `worker_id` the job must be resumable, or with `done` be done; a request to cancel it is withdrawn. With
    `worker_id` it must be run by that worker; a job that was asked to stop is cancelled instead.

    Returns:
        False if the job is not in such a state.
    """
    return bool(_requeue(session, JobRow.id == job_id, worker_id=worker_id, done=done))


def requeue_batch(session: Session, batch_id: int, *, final: Sequence[str]) -> int:
    """Put all resumable jobs of a batch back into the queue, but those with a stop reason in `final`.

    Returns:
        The number of jobs.
    """
    reason = func.coalesce(JobRow.stop_reason, "")
    return _requeue(session, (JobRow.batch_id == batch_id) & reason.not_in(final), worker_id=None)


def _requeue(session: Session, which: ColumnElement[bool], *, worker_id: str | None, done: bool = False) -> int:
    values: dict[str, object] = {"status": JobStatus.QUEUED.value, "stop_reason": None, "finished_at": None}
    where: ColumnElement[bool]
    if worker_id is None:
        where = JobRow.status.in_((*RESUMABLE, JobStatus.DONE) if done else RESUMABLE)
        values["cancel_requested"] = False
    else:
        where = (JobRow.status == JobStatus.RUNNING.value) & (JobRow.worker_id == worker_id)
        cancelled = {"status": JobStatus.CANCELLED.value, "stop_reason": "cancelled", "finished_at": utc_now()}
        values = {name: case((JobRow.cancel_requested, cancelled[name]), else_=value) for name, value in values.items()}
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
            **values,
        )
        .returning(JobRow.id)
    ).all()
    return len(changed)


def increment_attempt(session: Session, job_id: int, attempt: int) -> bool:
    """Move a queued job from this attempt to the next, so that it can be enqueued once more.

    Returns:
        False if the job is not queued in this attempt.
    """
    queued = (JobRow.id == job_id, JobRow.status == JobStatus.QUEUED.value, JobRow.attempt == attempt)
    changed = session.execute(update(JobRow).where(*queued).values(attempt=attempt + 1).returning(JobRow.id)).all()
    return bool(changed)


def fail_queued(session: Session, job_id: int, error: str) -> bool:
    """End a queued job that cannot be run. False if it is not queued."""
    changed = session.execute(
        update(JobRow)
        .where(JobRow.id == job_id, JobRow.status == JobStatus.QUEUED.value)
        .values(status=JobStatus.FAILED.value, stop_reason="error", error=error, finished_at=utc_now())
        .returning(JobRow.id)
    ).all()
    return bool(changed)


def list_queued(session: Session, *, after: int = 0) -> Sequence[tuple[int, int]]:
    """The id and the attempt of each queued job with an id above `after`, in the order in which they will run."""
    query = select(JobRow.id, JobRow.attempt).where(JobRow.status == JobStatus.QUEUED.value, JobRow.id > after)
    found = session.execute(query.order_by(JobRow.priority, JobRow.fair_tag, JobRow.id))
    return [(row.id, row.attempt) for row in found]


def list_orphaned(session: Session) -> Sequence[tuple[int, str]]:
    """The running jobs whose worker has ended or was declared lost, with the ids of their workers."""
    live = select(WorkerRow.id).where(WorkerRow.status.in_(LIVE))
    query = select(JobRow.id, JobRow.worker_id).where(
        JobRow.status == JobStatus.RUNNING.value, JobRow.worker_id.is_not(None), JobRow.worker_id.not_in(live)
    )
    return [(row.id, row.worker_id) for row in session.execute(query.order_by(JobRow.id))]


def list_jobs_of_worker(session: Session, worker_id: str) -> Sequence[int]:
    """The ids of the running jobs of a worker, which may be lost."""
    query = select(JobRow.id).where(JobRow.worker_id == worker_id, JobRow.status == JobStatus.RUNNING.value)
    return list(session.scalars(query.order_by(JobRow.id)))


def count_open(session: Session, user: str) -> int:
    """The number of a user's jobs that are queued or running. An open run over a model counts, and not its regions."""
    query = select(func.count()).where(JobRow.user == user, JobRow.status.in_(OPEN), ~model_runs.of_open_run())
    return session.scalar(query) or 0


def count_queued(session: Session) -> dict[str, int]:
    """The numbers of queued jobs by platform."""
    query = select(JobRow.platform, func.count()).where(JobRow.status == JobStatus.QUEUED.value)
    return {str(platform): int(count) for platform, count in session.execute(query.group_by(JobRow.platform))}


def count_queued_before(session: Session, job_id: int) -> int:
    """The number of queued jobs of the same platform that run before this one."""
    job = session.get_one(JobRow, job_id)
    before = or_(
        JobRow.priority < job.priority,
        and_(JobRow.priority == job.priority, JobRow.fair_tag < job.fair_tag),
        and_(JobRow.priority == job.priority, JobRow.fair_tag == job.fair_tag, JobRow.id < job.id),
    )
    query = select(func.count()).where(
        JobRow.status == JobStatus.QUEUED.value, JobRow.platform == job.platform, JobRow.id != job.id, before
    )
    return session.scalar(query) or 0
