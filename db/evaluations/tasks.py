"""Tasks in the store. A suite and name may have several sources; the one that was stored last is the current one."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Select, func, select, tuple_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Bundle, Session

from db.records import TaskCount, TaskHead, TaskRecord
from db.tables import JobRow, TaskRow
from db.types import utc_now

HEAD_COLUMNS = (TaskRow.id, TaskRow.suite, TaskRow.name, TaskRow.source_hash, TaskRow.category, TaskRow.dtype)
"""The columns of a `TaskHead`. Lists do not read sources, which may be large."""


def add_task(
    session: Session, *, suite: str, name: str, source_hash: str, source: str, category: str, dtype: str
) -> int:
    """Store a task unless this suite, name and source are stored already.

    Returns:
        The task's id.
    """
    key = (TaskRow.suite == suite, TaskRow.name == name, TaskRow.source_hash == source_hash)
    found = session.scalar(select(TaskRow.id).where(*key))
    if found is not None:
        return found
    row = TaskRow(suite=suite, name=name, source_hash=source_hash, source=source, category=category, dtype=dtype)
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:  # another process has stored it since the query above
        return session.scalars(select(TaskRow.id).where(*key)).one()
    return row.id


def list_tasks(
    session: Session, *, suite: str | None = None, before: int | None = None, limit: int = 50
) -> list[TaskHead]:
    """Stored tasks, newest first. `before` selects those with a lower id."""
    query = select(*HEAD_COLUMNS).order_by(TaskRow.id.desc()).limit(limit)
    if suite is not None:
        query = query.where(TaskRow.suite == suite)
    if before is not None:
        query = query.where(TaskRow.id < before)
    return [task_head(row) for row in session.execute(query)]


def list_heads(session: Session, task_ids: Collection[int]) -> dict[int, TaskHead]:
    """The tasks with these ids, by id."""
    found = [task_head(row) for row in session.execute(select(*HEAD_COLUMNS).where(TaskRow.id.in_(task_ids)))]
    return {task.id: task for task in found}


def find_source(session: Session, suite: str, name: str, source_hash: str) -> TaskRecord | None:
    """The task with this suite, name and source, or None."""
    key = (TaskRow.suite == suite, TaskRow.name == name, TaskRow.source_hash == source_hash)
    row = session.scalar(select(TaskRow).where(*key))
    return None if row is None else task_record(row)


def find_current(session: Session, suite: str, name: str) -> TaskRecord | None:
    """The current task with this suite and name, or None."""
    query = select(TaskRow).where(TaskRow.suite == suite, TaskRow.name == name)
    row = session.scalars(query.order_by(TaskRow.created_at.desc(), TaskRow.id.desc()).limit(1)).one_or_none()
    return None if row is None else task_record(row)


def list_current(session: Session, *, excluding: Sequence[str] = ()) -> list[TaskRecord]:
    """The current tasks of all suites but those in `excluding`, by suite, leading number of the name, and name."""
    query = select(TaskRow).where(TaskRow.id.in_(_current(excluding)))
    return sorted((task_record(row) for row in session.scalars(query)), key=_by_name)


def list_current_heads(session: Session, *, excluding: Sequence[str] = ()) -> list[TaskHead]:
    """The same as `list_current` without sources."""
    query = select(*HEAD_COLUMNS).where(TaskRow.id.in_(_current(excluding)))
    return sorted((task_head(row) for row in session.execute(query)), key=_by_name)


def list_task_counts(session: Session, *, suite: str | None, limit: int, offset: int) -> list[TaskCount]:
    """The newest source of each task name with its numbers of jobs, by suite and name."""
    jobs = select(JobRow.task_id, func.count().label("jobs")).group_by(JobRow.task_id).subquery()
    best = (
        select(JobRow.task_id, func.count().label("passed"))
        .where(JobRow.best_evaluation_id.is_not(None))
        .group_by(JobRow.task_id)
        .subquery()
    )
    newest = select(func.max(TaskRow.id).label("id")).group_by(TaskRow.suite, TaskRow.name).subquery()
    query = (
        select(Bundle("task", *HEAD_COLUMNS), jobs.c.jobs, best.c.passed)
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


def list_source_hashes(session: Session, suite: str, name: str) -> list[str]:
    """The hashes of the sources that were stored for a suite and name: the 50 newest, newest first."""
    query = select(TaskRow.source_hash).where(TaskRow.suite == suite, TaskRow.name == name)
    return list(session.scalars(query.order_by(TaskRow.id.desc()).limit(50)))


def names_with_several_sources(session: Session, names: Collection[str]) -> frozenset[str]:
    """Those of these task names (`suite/name`) that have more than one source."""
    pairs = [(suite, name) for suite, _, name in (each.partition("/") for each in names)]
    query = select(TaskRow.suite, TaskRow.name).where(tuple_(TaskRow.suite, TaskRow.name).in_(pairs))
    query = query.group_by(TaskRow.suite, TaskRow.name).having(func.count() > 1)
    return frozenset(f"{row.suite}/{row.name}" for row in session.execute(query))


def _current(excluding: Sequence[str]) -> Select[int]:
    place = (
        func.row_number()
        .over(partition_by=(TaskRow.suite, TaskRow.name), order_by=(TaskRow.created_at.desc(), TaskRow.id.desc()))
        .label("place")
    )
    ranked = select(TaskRow.id, place).where(TaskRow.suite.not_in(excluding)).subquery()
    return select(ranked.c.id).where(ranked.c.place == 1)


def _by_name(task: TaskHead) -> tuple[str, int, str]:
    return (task.suite, _leading_number(task.name), task.name)


def make_current(session: Session, task_id: int) -> None:
    """Make this task the current one of its suite and name."""
    session.execute(update(TaskRow).where(TaskRow.id == task_id).values(created_at=utc_now()))


def _leading_number(name: str) -> int:
    digits = name[: len(name) - len(name.lstrip("0123456789"))]
    return int(digits[:9]) if digits.isascii() and digits else 0


def task_record(row: TaskRow) -> TaskRecord:
    """Convert a row to a plain value."""
    return TaskRecord(row.id, row.suite, row.name, row.source_hash, row.category, row.dtype, source=row.source)


def task_head(row: Any) -> TaskHead:
    """Convert the columns `HEAD_COLUMNS` of a row to a plain value."""
    return TaskHead(*(getattr(row, column.key) for column in HEAD_COLUMNS))
