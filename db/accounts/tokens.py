"""Access tokens in the store. Only the hash of a token is stored."""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.orm import Session

from db.accounts.audit import add_audit
from db.errors import NotInStore
from db.records import TokenRecord
from db.tables import TokenRow
from db.types import utc_now


def add_token(
    session: Session,
    *,
    name: str,
    user: str,
    role: str,
    secret_hash: str,
    expires_at: datetime | None,
    max_jobs: int | None,
    max_usd_a_day: float | None,
) -> TokenRecord:
    """Store a token with the hash of its secret."""
    row = TokenRow(
        name=name,
        user=user,
        role=role,
        hash=secret_hash,
        expires_at=expires_at,
        max_jobs=max_jobs,
        max_usd_a_day=max_usd_a_day,
    )
    session.add(row)
    session.flush()
    return _record(row)


def find_by_hash(session: Session, secret_hash: str) -> tuple[TokenRecord, str] | None:
    """The token with this hash and the stored hash, or None."""
    row = session.scalar(select(TokenRow).where(TokenRow.hash == secret_hash))
    return None if row is None else (_record(row), row.hash)


def get_token(session: Session, token_id: int) -> TokenRecord:
    """The token with this id.

    Raises:
        NotInStore: There is no such token.
    """
    row = session.get(TokenRow, token_id)
    if row is None:
        raise NotInStore(f"token {token_id} is not in the store; `kernelwright tokens list` shows those that are")
    return _record(row)


def list_tokens(session: Session) -> list[TokenRecord]:
    """All tokens, including revoked and expired ones, oldest first."""
    return [_record(row) for row in session.scalars(select(TokenRow).order_by(TokenRow.id))]


def count_valid(session: Session) -> int:
    """The number of tokens that are neither revoked nor expired."""
    return session.scalar(select(func.count()).where(_valid())) or 0


def valid_ids(session: Session, token_ids: Collection[int]) -> set[int]:
    """Which of these tokens are neither revoked nor expired."""
    return set(session.scalars(select(TokenRow.id).where(TokenRow.id.in_(token_ids), _valid())))


def revoke_token(session: Session, token_id: int) -> bool:
    """Revoke a token. False if it is revoked already or does not exist."""
    changed = session.execute(
        update(TokenRow)
        .where(TokenRow.id == token_id, TokenRow.revoked_at.is_(None))
        .values(revoked_at=utc_now())
        .returning(TokenRow.id)
    ).all()
    return bool(changed)


def record_use(session: Session, token_id: int, *, interval: timedelta) -> None:
    """Store that a token was used now, unless a use within the last `interval` is stored."""
    now = utc_now()
    stale = TokenRow.last_used_at.is_(None) | (TokenRow.last_used_at < now - interval)
    session.execute(update(TokenRow).where(TokenRow.id == token_id, stale).values(last_used_at=now))


def audit_change(session: Session, *, actor: str, action: str, token: TokenRecord, reason: str = "") -> None:
    """Add a line to the audit log about a change of a token."""
    data = {"name": token.name, "user": token.user, "role": token.role}
    add_audit(session, actor=actor, action=action, subject=f"token/{token.id}", reason=reason, data=data)


def _valid() -> ColumnElement[bool]:
    return TokenRow.revoked_at.is_(None) & (TokenRow.expires_at.is_(None) | (TokenRow.expires_at > utc_now()))


def _record(row: TokenRow) -> TokenRecord:
    return TokenRecord(
        id=row.id,
        name=row.name,
        user=row.user,
        role=row.role,
        max_jobs=row.max_jobs,
        max_usd_a_day=row.max_usd_a_day,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )
