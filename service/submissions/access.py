"""Who may do what over HTTP: tokens, the roles that they stand for, and whose jobs are whose."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from db.accounts import tokens
from db.errors import NotInStore
from db.records import TokenRecord
from db.store import Store
from db.tables import LOCAL_USER
from db.types import utc_now
from service.errors import BadRequest

PREFIX = "kw_"
SECRET_BYTES = 32
MAX_DAYS = 3650
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_USE_NOTED_EVERY = timedelta(minutes=1)


class Role(StrEnum):
    """What a token allows; each role may do what those before it may."""

    VIEWER = "viewer"  # reads
    SUBMITTER = "submitter"  # queues jobs, and stops and resumes his own
    OPERATOR = "operator"  # everything: jobs of others, retractions, priorities, any model

    def includes(self, needed: "Role") -> bool:
        """Whether this role may do what `needed` may."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True)
class Principal:
    """Who asks. `token_id` is None for the local user, who needs no token."""

    user: str
    role: Role
    token_id: int | None = None
    max_jobs: int | None = None
    max_usd_a_day: float | None = None

    @property
    def actor(self) -> str:
        """How the audit log names who did something."""
        return self.user


LOCAL = Principal(LOCAL_USER, Role.OPERATOR)
"""Whoever reaches a server that is bound to loopback: the user of this machine."""


class NotAuthenticated(PermissionError):
    """No token, or one that opens nothing. The text says what to do, and nothing about tokens that exist."""


class NotAllowed(PermissionError):
    """Known, but not permitted. The text says what would be needed."""


def create_token(
    store: Store,
    *,
    name: str,
    user: str | None = None,
    role: str = Role.VIEWER.value,
    days: int | None = None,
    max_jobs: int | None = None,
    max_usd_a_day: float | None = None,
    actor: str = LOCAL_USER,
) -> tuple[TokenRecord, str]:
    """A new token and its secret, which is kept nowhere: it is shown once. `days` None: it does not expire.

    Raises:
        BadRequest: a name, role or limit is not acceptable.
    """
    user = user or name
    for option, value in (("name", name), ("--user", user)):
        if not _NAME.fullmatch(value):
            raise BadRequest(f"{option} {value[:80]!r}: use letters, digits and . _ @ - (64 at most), no sign first")
    if user == LOCAL_USER:
        raise BadRequest(f"--user {LOCAL_USER}: is who works on this machine without a token; choose another name")
    if role not in list(Role):
        raise BadRequest(f"--role {role[:80]!r}: unknown; there is: {', '.join(Role)}")
    if days is not None and not 1 <= days <= MAX_DAYS:
        raise BadRequest(f"--days {days}: must be 1 to {MAX_DAYS}; leave it out for a token that does not expire")
    if max_jobs is not None and max_jobs < 0:
        raise BadRequest(f"--max-jobs {max_jobs}: must be 0 or more")
    if max_usd_a_day is not None and not 0 <= max_usd_a_day < float("inf"):
        raise BadRequest(f"--max-usd-a-day {max_usd_a_day}: must be 0 or more")
    secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    with store.write() as session:
        record = tokens.add_token(
            session,
            name=name,
            user=user,
            role=role,
            secret_hash=_hash(secret),
            expires_at=None if days is None else utc_now() + timedelta(days=days),
            max_jobs=max_jobs,
            max_usd_a_day=max_usd_a_day,
        )
        tokens.audit_change(session, actor=actor, action="token.create", token=record)
    return record, secret


def revoke_token(store: Store, token_id: int, *, actor: str = LOCAL_USER, reason: str = "") -> TokenRecord:
    """End a token at once, with every session that was opened by it; revoking it again changes nothing.

    Raises:
        NotInStore: there is none with this id.
    """
    with store.write() as session:
        record = tokens.get_token(session, token_id)
        if tokens.revoke_token(session, token_id):
            tokens.audit_change(session, actor=actor, action="token.revoke", token=record, reason=reason)
        return tokens.get_token(session, token_id)


def list_tokens(store: Store) -> list[TokenRecord]:
    """All tokens, without their secrets."""
    with store.read() as session:
        return tokens.list_tokens(session)


def any_token_opens(store: Store) -> bool:
    """Whether anyone could log in."""
    with store.read() as session:
        return tokens.count_valid(session) > 0


def authenticate(store: Store, secret: str) -> Principal:
    """Who holds this secret.

    Raises:
        NotAuthenticated: nobody does, or the token has expired or was revoked.
    """
    digest = _hash(secret)
    with store.read() as session:
        found = tokens.find_by_hash(session, digest)
    # The look-up is by a hash, so its time tells nothing of the secret; the comparison takes the same time always.
    if found is None or not hmac.compare_digest(found[1], digest):
        raise NotAuthenticated("the token is not known; ask an operator for one (kernelwright tokens create)")
    return _principal(store, found[0])


def authenticate_session(store: Store, token_id: int) -> Principal:
    """Who logged in with this token.

    Raises:
        NotAuthenticated: the token has expired, was revoked or is gone.
    """
    try:
        with store.read() as session:
            found = tokens.get_token(session, token_id)
    except NotInStore as error:
        raise NotAuthenticated("the session has ended; log in again") from error
    return _principal(store, found)


def still_valid(store: Store, principal: Principal) -> None:
    """Find out, in the middle of something long, whether its token still opens anything.

    Raises:
        NotAuthenticated: it has expired or was revoked.
    """
    if principal.token_id is not None:
        authenticate_session(store, principal.token_id)


def require(principal: Principal, role: Role) -> None:
    """Refuse who may not do what `role` may.

    Raises:
        NotAllowed: names the role that is needed.
    """
    if not principal.role.includes(role):
        raise NotAllowed(f"this needs the role {role}; the token's role is {principal.role}")


def may_change(principal: Principal, owner: str) -> bool:
    """Whether someone may stop and resume what `owner` queued: he himself, and operators."""
    own = principal.user == owner and principal.role.includes(Role.SUBMITTER)
    return own or principal.role.includes(Role.OPERATOR)


def require_owner(principal: Principal, owner: str, name: str, what: str) -> None:
    """Refuse who wants to change what another queued, unless he is an operator. `name` is that of the job or batch.

    Raises:
        NotAllowed: it is someone else's, or the role changes nothing at all.
    """
    require(principal, Role.SUBMITTER)
    if not may_change(principal, owner):
        raise NotAllowed(f"{name} is another user's; only its owner or an operator may {what} it")


def _principal(store: Store, record: TokenRecord) -> Principal:
    now = utc_now()
    if not record.valid_at(now):
        raise NotAuthenticated("the token has expired or was revoked; ask an operator for a new one")
    if record.last_used_at is None or now - record.last_used_at > _USE_NOTED_EVERY:
        with store.write() as session:
            tokens.record_use(session, record.id, interval=_USE_NOTED_EVERY)
    return Principal(record.user, Role(record.role), record.id, record.max_jobs, record.max_usd_a_day)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
