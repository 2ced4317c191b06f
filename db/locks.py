"""The clock by which processes of several hosts judge each other: their database's, for their own need not agree."""

import hashlib
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from db.tables import JobRow
from db.types import utc_now


def now_of(session: Session) -> Any:
    """This moment, to be written to a row: what the database says, or (SQLite, on one host) what we say."""
    return func.clock_timestamp() if session.get_bind().dialect.name == "postgresql" else utc_now()


def silence_s(session: Session, last: datetime) -> float:
    """For how long nothing was heard since `last`, in seconds, of the time in which something could be."""
    if session.get_bind().dialect.name != "postgresql":
        return (utc_now() - last).total_seconds()
    now = session.scalars(select(func.clock_timestamp())).one()
    up_since = session.scalars(text("SELECT pg_postmaster_start_time()")).one()
    return float((now - max(last, up_since)).total_seconds())


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
