"""Tokens in the store: who may do what over HTTP. Only the hash of a token is kept."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from db.accounts.audit import add_audit
from db.errors import NotInStore
from db.tables import TokenRow
from db.types import utc_now


@dataclass(frozen=True)
class TokenRecord:
    """A token without its secret. `max_jobs` and `max_usd_a_day` None: no limit."""

    id: int
    name: str
    user: str
    role: str
    max_jobs: int | None
    max_usd_a_day: float | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    def valid_at(self, moment: datetime) -> bool:
        """Whether it opens anything at this moment."""
        return self.revoked_at is None and (self.expires_at is None or moment < self.expires_at)


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
    """Store a token by the hash of its secret."""
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
    """The token with this hash, and the hash as it is stored."""
    row = session.scalar(select(TokenRow).where(TokenRow.hash == secret_hash))
    return None if row is None else (_record(row), row.hash)


def get_token(session: Session, token_id: int) -> TokenRecord:
    """The token with this id.

    Raises:
        NotInStore: there is none.
    """
    row = session.get(TokenRow, token_id)
    if row is None:
        raise NotInStore(f"token {token_id} is not in the store; `kernelwright tokens list` shows those that are")
    return _record(row)


def list_tokens(session: Session) -> list[TokenRecord]:
    """All tokens, also those that open nothing any more, oldest first."""
    return [_record(row) for row in session.scalars(select(TokenRow).order_by(TokenRow.id))]


def count_valid(session: Session) -> int:
    """How many tokens open something now."""
    query = select(func.count()).where(
        TokenRow.revoked_at.is_(None), TokenRow.expires_at.is_(None) | (TokenRow.expires_at > utc_now())
    )
    return session.scalar(query) or 0


def revoke_token(session: Session, token_id: int) -> bool:
    """End a token; False if it had been revoked before or is not there."""
    changed = session.execute(
        update(TokenRow)
        .where(TokenRow.id == token_id, TokenRow.revoked_at.is_(None))
        .values(revoked_at=utc_now())
        .returning(TokenRow.id)
    ).all()
    return bool(changed)


def note_use(session: Session, token_id: int, *, not_since: timedelta) -> None:
    """Keep that a token was used now, unless that was noted a short while ago."""
    now = utc_now()
    stale = TokenRow.last_used_at.is_(None) | (TokenRow.last_used_at < now - not_since)
    session.execute(update(TokenRow).where(TokenRow.id == token_id, stale).values(last_used_at=now))


def note_change(session: Session, *, actor: str, action: str, token: TokenRecord, reason: str = "") -> None:
    """Add what was done to a token to the audit log."""
    data = {"name": token.name, "user": token.user, "role": token.role}
    add_audit(session, actor=actor, action=action, subject=f"token/{token.id}", reason=reason, data=data)


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
