"""Tasks in the store."""

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from db.errors import NotInStore
from db.records import TaskRecord
from db.tables import TaskRow


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
) -> list[TaskRecord]:
    """Tasks that were kept, newest first; `before`: only those with a lower id."""
    query = select(TaskRow).order_by(TaskRow.id.desc()).limit(limit)
    if suite is not None:
        query = query.where(TaskRow.suite == suite)
    if before is not None:
        query = query.where(TaskRow.id < before)
    return [task_record(row) for row in session.scalars(query)]


def find_task(session: Session, *, suite: str, name: str, source_hash: str | None = None) -> TaskRecord | None:
    """The newest task of this name, or the one with this source; None if there is none."""
    query = select(TaskRow).where(TaskRow.suite == suite, TaskRow.name == name)
    if source_hash is not None:
        query = query.where(TaskRow.source_hash == source_hash)
    row = session.scalar(query.order_by(TaskRow.id.desc()).limit(1))
    return None if row is None else task_record(row)


def task_record(row: TaskRow) -> TaskRecord:
    """The row as a plain value."""
    return TaskRecord(row.id, row.suite, row.name, row.source_hash, row.source, row.category, row.dtype)
