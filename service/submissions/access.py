"""Access over HTTP: tokens, their roles, and the ownership of jobs."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
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
    """The role of a token. Each role may do everything that the roles before it may do."""

    VIEWER = "viewer"  # reads
    SUBMITTER = "submitter"  # queues jobs, and stops and resumes its own
    OPERATOR = "operator"  # everything: jobs of others, retractions, priorities, any model

    def includes(self, needed: "Role") -> bool:
        """Whether this role may do what `needed` may."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True)
class Principal:
    """The user of a request. `token_id` is None for the local user, who needs no token."""

    user: str
    role: Role
    token_id: int | None = None
    max_jobs: int | None = None
    max_usd_a_day: float | None = None

    @property
    def actor(self) -> str:
        """The name of this user in the audit log."""
        return self.user


LOCAL = Principal(LOCAL_USER, Role.OPERATOR)
"""The user of this machine, who sends every request to a server that is bound to loopback."""


class NotAuthenticated(PermissionError):
    """The request has no valid token. The text says what to do, and nothing about tokens that exist."""


class NotAllowed(PermissionError):
    """The user is known, but not permitted to do this. The text says which role is needed."""


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
    """Create a token. Its secret is not stored and can be shown only once. `days` of None: the token does not expire.

    Returns:
        The token and its secret.

    Raises:
        BadRequest: a name, role or limit is not valid.
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
    """Revoke a token and every session that was opened with it. Revoking it again changes nothing.

    Raises:
        NotInStore: there is no token with this id.
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
    """Whether there is a token that is valid now."""
    with store.read() as session:
        return tokens.count_valid(session) > 0


def authenticate(store: Store, secret: str) -> Principal:
    """The user whose token has this secret.

    Raises:
        NotAuthenticated: there is no such token, or it has expired or was revoked.
    """
    digest = _hash(secret)
    with store.read() as session:
        found = tokens.find_by_hash(session, digest)
    # The look-up is by a hash, so its time reveals nothing about the secret. The comparison takes constant time.
    if found is None or not hmac.compare_digest(found[1], digest):
        raise NotAuthenticated("the token is not known; ask an operator for one (kernelwright tokens create)")
    return _principal(store, found[0])


def authenticate_session(store: Store, token_id: int) -> Principal:
    """The user who logged in with this token.

    Raises:
        NotAuthenticated: the token has expired, was revoked or is gone.
    """
    try:
        with store.read() as session:
            found = tokens.get_token(session, token_id)
    except NotInStore as error:
        raise NotAuthenticated("the session has ended; log in again") from error
    return _principal(store, found)


def valid_tokens(store: Store, token_ids: Collection[int]) -> set[int]:
    """Which of these tokens are valid now, for requests that last. Without ids, the store is not asked."""
    if not token_ids:
        return set()
    with store.read() as session:
        return tokens.valid_ids(session, token_ids)


def require(principal: Principal, role: Role) -> None:
    """Check that a user has at least this role.

    Raises:
        NotAllowed: the user has not. The text names the role that is needed.
    """
    if not principal.role.includes(role):
        raise NotAllowed(f"this needs the role {role}; the token's role is {principal.role}")


def may_change(principal: Principal, owner: str) -> bool:
    """Whether a user may stop and resume the jobs of `owner`. Owners and operators may."""
    own = principal.user == owner and principal.role.includes(Role.SUBMITTER)
    return own or principal.role.includes(Role.OPERATOR)


def require_owner(principal: Principal, owner: str, name: str, what: str) -> None:
    """Check that a user may change a job or batch of `owner`. `name` is the name of the job or batch.

    Raises:
        NotAllowed: it is another user's and the user is no operator, or the role may change nothing.
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
