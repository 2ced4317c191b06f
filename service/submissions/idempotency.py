"""Idempotent requests: repeating a request with the same key has one effect."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from db.accounts import idempotency
from db.store import Store
from service.errors import Conflict


def run_idempotent(
    store: Store, create: Callable[[Session], str], *, user: str, key: str | None, request: Mapping[str, Any]
) -> tuple[str, bool]:
    """Run `create` in a transaction, unless an earlier request with this key did.

    Args:
        store: the store.
        create: creates something and returns its id.
        user: the user of the request. Keys of different users are independent.
        key: the request's key; without one `create` always runs.
        request: the content of the request, which must be the same for the same key.

    Returns:
        The id, and whether it was created by this request.

    Raises:
        Conflict: the key was used with another request.
    """
    digest = hashlib.sha256(json.dumps(request, sort_keys=True, default=str).encode()).hexdigest()
    try:
        return _run_once(store, create, user, key, digest)
    except IntegrityError:  # the same request arrived twice at the same moment
        if key is None:
            raise
        return _run_once(store, create, user, key, digest)


def _run_once(
    store: Store, create: Callable[[Session], str], user: str, key: str | None, digest: str
) -> tuple[str, bool]:
    with store.write() as session:
        if key is not None:
            found = idempotency.find_result(session, user, key)
            if found is not None and found[0] != digest:
                raise Conflict(f"Idempotency-Key {key[:80]!r} came with another request before; use a new one")
            if found is not None:
                return found[1], False
        created = create(session)
        if key is not None:
            idempotency.add_result(session, user, key, request_hash=digest, subject=created)
    return created, True
