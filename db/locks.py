"""Locks inside a transaction, for decisions that rest on what was read: SQLite lets in one writer at a time, PostgreSQL
lets in all. Who needs several takes the job's first, then the board's; all are given back when the transaction ends.
A new task makes others wait who add the same one: tasks are added first, by suite, name and hash, and the line's lock
is taken after them.
"""

import hashlib

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from db.tables import JobRow


def lock_job(session: Session, job_id: int) -> None:
    """Make others wait who lock this job or change its row; what they kept is visible from here on.

    Rows that merely refer to the job can still be added by others.
    """
    session.execute(select(JobRow.id).where(JobRow.id == job_id).with_for_update(key_share=True))


def lock_jobs(session: Session, batch_id: int) -> None:
    """As `lock_job`, all jobs of a batch, in the order of their ids."""
    of_batch = select(JobRow.id).where(JobRow.batch_id == batch_id).order_by(JobRow.id)
    session.execute(of_batch.with_for_update(key_share=True)).all()


def lock_name(session: Session, *name: str | int, shared: bool = False) -> None:
    """Make others wait who lock the same name; those who share it wait only for one who does not."""
    if session.get_bind().dialect.name == "postgresql":
        digest = hashlib.sha256("\0".join(str(part) for part in name).encode()).digest()
        key = int.from_bytes(digest[:8], "big", signed=True)
        function = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
        session.execute(text(f"SELECT {function}(:key)"), {"key": key})
