"""The clock by which processes of several hosts judge each other: their database's, for their own need not agree."""

from datetime import datetime
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

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
