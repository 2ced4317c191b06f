"""Results of requests that had an idempotency key, so that a repeated request has no second effect."""

from datetime import timedelta

from sqlalchemy import delete
from sqlalchemy.orm import Session

from db.tables import IdempotencyRow
from db.types import utc_now

KEPT_FOR = timedelta(days=7)


def find_result(session: Session, user: str, key: str) -> tuple[str, str] | None:
    """The hash of the request that had this key and the subject that it created, or None."""
    row = session.get(IdempotencyRow, (user, key))
    return None if row is None else (row.request_hash, row.subject)


def add_result(session: Session, user: str, key: str, *, request_hash: str, subject: str) -> None:
    """Store what a request created, and delete this user's results that are older than `KEPT_FOR`."""
    expired = (IdempotencyRow.user == user) & (IdempotencyRow.created_at < utc_now() - KEPT_FOR)
    session.execute(delete(IdempotencyRow).where(expired))
    session.add(IdempotencyRow(user=user, key=key, request_hash=request_hash, subject=subject))
    session.flush()
