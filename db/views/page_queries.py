"""Queries behind the pages: who waits where, which workers live, what is known of one candidate or task."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import and_, func, or_, select, tuple_
from sqlalchemy.orm import Bundle, Session, defer

from db.evaluations.results import record_of
from db.evaluations.tasks import HEAD, task_head
from db.leaderboard.query import Entry
from db.records import EvaluationRecord, JobStatus, Measured, TaskHead
from db.tables import CandidateRow, EvaluationRow, JobRow, RoundRow, StandingRow, TaskRow

MAX_VALUE_CHARS = 200


@dataclass(frozen=True)
class TaskCount:
    """A task of the store with how many jobs worked on it and how many evaluations passed."""

    task: TaskHead
    jobs: int
    passed: int


def running_by_worker(session: Session) -> dict[str, int]:
    """The job that each worker runs; where there are several, the latest."""
    query = select(JobRow.worker_id, func.max(JobRow.id)).where(
        JobRow.status == JobStatus.RUNNING.value, JobRow.worker_id.is_not(None)
    )
    return {str(worker): int(job) for worker, job in session.execute(query.group_by(JobRow.worker_id))}


def count_waiting(session: Session) -> dict[str, int]:
    """How many jobs wait, by platform."""
    query = select(JobRow.platform, func.count()).where(JobRow.status == JobStatus.QUEUED.value)
    return {str(platform): int(count) for platform, count in session.execute(query.group_by(JobRow.platform))}


def count_by_status(session: Session) -> dict[str, int]:
    """How many optimizing jobs there are of each status."""
    query = select(JobRow.status, func.count()).where(JobRow.kind == "optimize").group_by(JobRow.status)
    return {str(status): int(count) for status, count in session.execute(query)}


def waiting_ahead(session: Session, job_id: int) -> int:
    """How many jobs of the same platform come before this one in line."""
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


def evaluations_of(session: Session, candidate_hash: str, *, task_id: int, limit: int = 50) -> list[EvaluationRecord]:
    """Evaluations of this candidate in all jobs on this task, newest first; for another source they prove nothing."""
    query = (
        select(EvaluationRow, CandidateRow)
        .join(CandidateRow, EvaluationRow.candidate_id == CandidateRow.id)
        .join(JobRow, CandidateRow.job_id == JobRow.id)
        .where(CandidateRow.hash == candidate_hash, JobRow.task_id == task_id)
        .order_by(EvaluationRow.created_at.desc(), EvaluationRow.id)
        .limit(limit)
    )
    return [record_of(evaluation, candidate) for evaluation, candidate in session.execute(query)]


def candidate_rounds(session: Session, job_id: int) -> list[tuple[int, str]]:
    """Round and hash of each candidate of a job, in the order in which they were written."""
    query = select(CandidateRow.round, CandidateRow.hash).where(CandidateRow.job_id == job_id)
    return [(row.round, row.hash) for row in session.execute(query.order_by(CandidateRow.round, CandidateRow.id))]


def advice_of(session: Session, job_id: int) -> dict[int, dict[str, object]]:
    """The Judge's advice after each round that has any."""
    query = select(RoundRow.number, RoundRow.advice).where(RoundRow.job_id == job_id).order_by(RoundRow.number)
    return {row.number: row.advice for row in session.execute(query) if row.advice}


def task_counts(session: Session, *, suite: str | None, limit: int, offset: int) -> list[TaskCount]:
    """Tasks of the store by name, each in its newest form."""
    jobs = select(JobRow.task_id, func.count().label("jobs")).group_by(JobRow.task_id).subquery()
    best = (
        select(JobRow.task_id, func.count().label("passed"))
        .where(JobRow.best_evaluation_id.is_not(None))
        .group_by(JobRow.task_id)
        .subquery()
    )
    newest = select(func.max(TaskRow.id).label("id")).group_by(TaskRow.suite, TaskRow.name).subquery()
    query = (
        select(Bundle("task", *HEAD), jobs.c.jobs, best.c.passed)
        .join(newest, newest.c.id == TaskRow.id)
        .outerjoin(jobs, jobs.c.task_id == TaskRow.id)
        .outerjoin(best, best.c.task_id == TaskRow.id)
        .order_by(TaskRow.suite, TaskRow.name)
    )
    if suite is not None:
        query = query.where(TaskRow.suite == suite)
    return [
        TaskCount(task_head(row.task), row.jobs or 0, row.passed or 0)
        for row in session.execute(query.limit(limit).offset(offset))
    ]


def task_versions(session: Session, suite: str, name: str) -> Sequence[str]:
    """The hashes of the latest sources that a task of this name has had, newest first."""
    query = select(TaskRow.source_hash).where(TaskRow.suite == suite, TaskRow.name == name)
    return list(session.scalars(query.order_by(TaskRow.id.desc()).limit(50)))


def with_several_sources(session: Session, tasks: Collection[str]) -> frozenset[str]:
    """Those of these tasks (`suite/name`) whose name several sources share."""
    names = [(suite, name) for suite, _, name in (task.partition("/") for task in tasks)]
    query = select(TaskRow.suite, TaskRow.name).where(tuple_(TaskRow.suite, TaskRow.name).in_(names))
    query = query.group_by(TaskRow.suite, TaskRow.name).having(func.count() > 1)
    return frozenset(f"{row.suite}/{row.name}" for row in session.execute(query))


def speedups(session: Session, evaluation_ids: Sequence[str]) -> dict[str, tuple[Measured, tuple[str, ...]]]:
    """The figures of evaluations and their tags, without what is bulky."""
    rows = session.scalars(
        select(EvaluationRow).where(EvaluationRow.id.in_(evaluation_ids)).options(defer(EvaluationRow.result))
    )
    return {
        row.id: (Measured(row.speedup, row.speedup_low, row.speedup_high, row.speedup_compile), tuple(row.tags))
        for row in rows
    }


def board_values(session: Session, column: str) -> tuple[str, ...]:
    """The different values that a column of the leaderboard has, sorted; at most 500, and none that is overlong."""
    values = getattr(StandingRow, column)
    chosen = select(values).where(func.length(values) <= MAX_VALUE_CHARS).distinct()
    return tuple(session.scalars(chosen.order_by(values).limit(500)))


def shared_ranks(session: Session, entries: Sequence[Entry]) -> Counter[tuple[object, ...]]:
    """How many share each rank on the boards of these entries, by board and rank."""
    keys = {entry.board for entry in entries}
    columns = (StandingRow.task, StandingRow.source_hash, StandingRow.platform, StandingRow.device, StandingRow.sandbox)
    query = (
        select(*columns, StandingRow.rank, func.count().label("count"))
        .where(tuple_(*columns).in_(keys), StandingRow.rank.is_not(None))
        .group_by(*columns, StandingRow.rank)
    )
    return Counter({tuple(row[:-1]): row.count for row in session.execute(query)})
