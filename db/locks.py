"""Locks until the end of a transaction, and the database's clock, which all hosts share."""

import hashlib
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from db.tables import JobRow
from db.types import utc_now


def database_now(session: Session) -> Any:
    """The present time as a column value: PostgreSQL's own clock, or for SQLite (used on one host only) this host's."""
    return func.clock_timestamp() if session.get_bind().dialect.name == "postgresql" else utc_now()


def heartbeat_age_s(session: Session, last: datetime) -> float:
    """The seconds since a heartbeat at `last`. Time before the database was started does not count: no heartbeat could
    have been stored then.
    """
    if session.get_bind().dialect.name != "postgresql":
        return (utc_now() - last).total_seconds()
    now = session.scalars(select(func.clock_timestamp())).one()
    up_since = session.scalars(text("SELECT pg_postmaster_start_time()")).one()
    return float((now - max(last, up_since)).total_seconds())


def lock_job(session: Session, job_id: int) -> None:
    """Lock a job's row against other locks and updates. What they have committed is visible afterwards.

    Others can still add rows that refer to the job. Does nothing on SQLite, which has one writer at a time.
    """
    session.execute(select(JobRow.id).where(JobRow.id == job_id).with_for_update(key_share=True))


def lock_jobs(session: Session, batch_id: int) -> None:
    """Lock all jobs of a batch, in the order of their ids; see `lock_job`."""
    of_batch = select(JobRow.id).where(JobRow.batch_id == batch_id).order_by(JobRow.id)
    session.execute(of_batch.with_for_update(key_share=True)).all()


def lock_name(session: Session, *name: str | int, shared: bool = False) -> None:
    """Lock a name. Shared locks of the same name exclude only locks that are not shared. Does nothing on SQLite."""
    if session.get_bind().dialect.name == "postgresql":
        digest = hashlib.sha256("\0".join(str(part) for part in name).encode()).digest()
        key = int.from_bytes(digest[:8], "big", signed=True)
        function = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
        session.execute(text(f"SELECT {function}(:key)"), {"key": key})
