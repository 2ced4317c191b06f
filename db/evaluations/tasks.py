"""Tasks in the store. Of several sources with the same suite and name, the one that came last is the present one."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from db.errors import NotInStore
from db.records import TaskHead, TaskRecord
from db.tables import TaskRow
from db.types import utc_now

HEAD = (TaskRow.id, TaskRow.suite, TaskRow.name, TaskRow.source_hash, TaskRow.category, TaskRow.dtype)
"""The columns of a TaskHead: lists leave sources, which may be large, in the database."""


def add_task(
    session: Session, *, suite: str, name: str, source_hash: str, source: str, category: str, dtype: str
) -> int:
    """The id of the task with this suite, name and source; stored first if it is new."""
    key = (TaskRow.suite == suite, TaskRow.name == name, TaskRow.source_hash == source_hash)
    found = session.scalar(select(TaskRow.id).where(*key))
    if found is not None:
        return found
    row = TaskRow(suite=suite, name=name, source_hash=source_hash, source=source, category=category, dtype=dtype)
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:  # another process stored it since we looked
        return session.scalars(select(TaskRow.id).where(*key)).one()
    return row.id


def get_task(session: Session, task_id: int) -> TaskRecord:
    """The task with this id.

    Raises:
        NotInStore: there is none.
    """
    row = session.get(TaskRow, task_id)
    if row is None:
        raise NotInStore(f"task {task_id} is not in the store")
    return task_record(row)


def list_tasks(
    session: Session, *, suite: str | None = None, before: int | None = None, limit: int = 50
) -> list[TaskHead]:
    """Tasks that were kept, newest first; `before`: only those with a lower id."""
    query = select(*HEAD).order_by(TaskRow.id.desc()).limit(limit)
    if suite is not None:
        query = query.where(TaskRow.suite == suite)
    if before is not None:
        query = query.where(TaskRow.id < before)
    return [task_head(row) for row in session.execute(query)]


def find_source(session: Session, suite: str, name: str, source_hash: str) -> TaskRecord | None:
    """The task with this suite, name and source, if any."""
    key = (TaskRow.suite == suite, TaskRow.name == name, TaskRow.source_hash == source_hash)
    row = session.scalar(select(TaskRow).where(*key))
    return None if row is None else task_record(row)


def find_current(session: Session, suite: str, name: str) -> TaskRecord | None:
    """The present task with this suite and name, if any."""
    query = select(TaskRow).where(TaskRow.suite == suite, TaskRow.name == name)
    row = session.scalars(query.order_by(TaskRow.created_at.desc(), TaskRow.id.desc()).limit(1)).one_or_none()
    return None if row is None else task_record(row)


def list_current(session: Session, *, but: Sequence[str] = ()) -> list[TaskRecord]:
    """The present tasks of all suites that are not in `but`, by suite and name, numbers in a name by their size."""
    query = select(TaskRow).where(TaskRow.id.in_(_current(but)))
    return sorted((task_record(row) for row in session.scalars(query)), key=_by_name)


def list_current_heads(session: Session, *, but: Sequence[str] = ()) -> list[TaskHead]:
    """As `list_current`, without sources."""
    query = select(*HEAD).where(TaskRow.id.in_(_current(but)))
    return sorted((task_head(row) for row in session.execute(query)), key=_by_name)


def _current(but: Sequence[str]) -> Select[int]:
    place = (
        func.row_number()
        .over(partition_by=(TaskRow.suite, TaskRow.name), order_by=(TaskRow.created_at.desc(), TaskRow.id.desc()))
        .label("place")
    )
    ranked = select(TaskRow.id, place).where(TaskRow.suite.not_in(but)).subquery()
    return select(ranked.c.id).where(ranked.c.place == 1)


def _by_name(task: TaskHead) -> tuple[str, int, str]:
    return (task.suite, _leading_number(task.name), task.name)


def make_current(session: Session, task_id: int) -> None:
    """Have this task count as the one that came last."""
    session.execute(update(TaskRow).where(TaskRow.id == task_id).values(created_at=utc_now()))


def _leading_number(name: str) -> int:
    digits = name[: len(name) - len(name.lstrip("0123456789"))]
    return int(digits[:9]) if digits.isascii() and digits else 0


def task_record(row: TaskRow) -> TaskRecord:
    """The row as a plain value."""
    return TaskRecord(row.id, row.suite, row.name, row.source_hash, row.category, row.dtype, source=row.source)


def task_head(row: Any) -> TaskHead:
    """The columns `HEAD` of a row as a plain value."""
    return TaskHead(*(getattr(row, column.key) for column in HEAD))
