"""Requests about weights over HTTP: each user has weights of their own, within a limit."""

from typing import BinaryIO

from sqlalchemy.orm import Session

from db.errors import NotInStore
from db.jobs import weights as stored
from db.records import WeightsRecord
from db.store import Store
from service.errors import Conflict
from service.settings import Settings
from service.submissions.access import Principal, Role, require
from service.submissions.quotas import QuotaExceeded
from service.weights import keep_weights, remove_weights, source_of_file
from tasks.weights_file import MAX_STATE_BYTES

MAX_FILE_BYTES = MAX_STATE_BYTES
"""The largest file that is taken."""


def check_size(principal: Principal, size_bytes: int, *, settings: Settings) -> None:
    """Check that a user may send a file of this size, before it is read.

    Raises:
        NotAllowed, QuotaExceeded: the token does not allow it, or these weights alone would take too much.
    """
    require(principal, Role.SUBMITTER)
    _check_room(principal, size_bytes, settings)


def send_weights_for(
    principal: Principal, file: BinaryIO, size_bytes: int, *, settings: Settings, store: Store
) -> tuple[WeightsRecord, bool]:
    """Keep the weights in a safetensors file of `size_bytes` bytes for jobs of the user.

    Returns:
        What is kept, and False if it was kept before.

    Raises:
        BadRequest: it is no safetensors file, or too large.
        Conflict: the weights were removed meanwhile.
        NotAllowed, QuotaExceeded: the token does not allow it, or all of the user's weights would take too much.
    """
    require(principal, Role.SUBMITTER)
    source = source_of_file(file, size_bytes)

    def check(session: Session) -> None:
        others = stored.stored_bytes(session, principal.user, but_for=source.digest)
        _check_room(principal, others + size_bytes + stored.ROW_BYTES, settings)

    new = keep_weights(store, principal.user, source, check=check)
    return get_weights_for(principal, source.digest, store=store), new


def list_weights_for(principal: Principal, *, store: Store) -> list[WeightsRecord]:
    """The user's weights, those that were used last first."""
    with store.read() as session:
        return stored.list_weights(session, principal.user)


def get_weights_for(principal: Principal, digest: str, *, store: Store) -> WeightsRecord:
    """The user's weights with this digest.

    Raises:
        NotInStore: there are none.
    """
    with store.read() as session:
        found = stored.find_weights(session, principal.user, digest)
    if found is None:
        raise NotInStore(f"weights {digest[:12]}: none are kept for {principal.user}")
    return found


def remove_weights_for(principal: Principal, digest: str, *, store: Store) -> None:
    """Remove weights of the user.

    Raises:
        NotInStore: there are none.
        Conflict: a job that waits or runs works with them.
        NotAllowed: the token does not allow it.
    """
    require(principal, Role.SUBMITTER)
    with store.write(announce=False) as session:
        stored.lock_weights(session, principal.user)
        if stored.is_wanted(session, principal.user, digest):
            raise Conflict(f"weights {digest[:12]}: a job that waits or runs works with them; cancel it first")
        used_at = stored.begin_removal(session, principal.user, digest)
        if used_at is None:
            raise NotInStore(f"weights {digest[:12]}: none are kept for {principal.user}")
    remove_weights(store, principal.user, digest, used_at=used_at)


def _check_room(principal: Principal, size_bytes: int, settings: Settings) -> None:
    """Check that a user's weights may take so much. The user of this machine may fill its disk."""
    if principal.token_id is not None and size_bytes > settings.weights_mb << 20:
        raise QuotaExceeded(
            f"{settings.weights_mb} MiB of weights are kept for one user, and these would be more; remove others"
            " (GET and DELETE /api/v1/weights)"
        )
