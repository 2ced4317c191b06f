"""What requests with an idempotency key came to, so that sending one again changes nothing."""

from datetime import timedelta

from sqlalchemy import delete
from sqlalchemy.orm import Session

from db.tables import IdempotencyRow
from db.types import utc_now

KEPT = timedelta(days=7)


def find_answer(session: Session, user: str, key: str) -> tuple[str, str] | None:
    """The hash of the request that came with this key, and what was made for it."""
    row = session.get(IdempotencyRow, (user, key))
    return None if row is None else (row.request_hash, row.subject)


def add_answer(session: Session, user: str, key: str, *, request_hash: str, subject: str) -> None:
    """Keep what was made for a request; answers older than a week are forgotten."""
    forgotten = (IdempotencyRow.user == user) & (IdempotencyRow.created_at < utc_now() - KEPT)
    session.execute(delete(IdempotencyRow).where(forgotten))
    session.add(IdempotencyRow(user=user, key=key, request_hash=request_hash, subject=subject))
    session.flush()
