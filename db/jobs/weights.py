"""The weights of models that users have sent. They are stored in parts, each by a short transaction."""

import json
import zlib
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, func, select, update
from sqlalchemy.orm import Session

from db.locks import lock_name
from db.records import OPEN, WEIGHTS, WeightsRecord
from db.tables import JobRow, WeightsPartRow, WeightsRow
from db.types import utc_now
from tasks.weights_file import WeightRow

ROW_BYTES = 64 << 10
"""What weights count beside their bytes, so that a limit on bytes bounds their number, too."""

_PARTS_AT_ONCE = 32  # that a transaction removes: others who write wait for its end


def begin_weights(
    session: Session, user: str, digest: str, tensors: Sequence[WeightRow], *, size_bytes: int
) -> frozenset[int]:
    """Store that a user sends weights, unless they are there; the positions of the parts that are stored.

    The caller has locked the user's weights (`lock_weights`).
    """
    if session.get(WeightsRow, (user, digest)) is None:
        packed = zlib.compress(json.dumps([tensor.to_json() for tensor in tensors]).encode())
        session.add(WeightsRow(user=user, digest=digest, tensors=packed, size_bytes=size_bytes, complete=False))
    touch_weights(session, user, digest)
    return frozenset(session.scalars(select(WeightsPartRow.position).where(_named(WeightsPartRow, user, digest))))


def add_part(session: Session, user: str, digest: str, position: int, data: bytes) -> bool:
    """Store a part of the bytes, unless it is there. The caller has locked the user's weights.

    Returns:
        False if the weights were removed meanwhile.
    """
    if session.get(WeightsRow, (user, digest)) is None:
        return False
    if session.get(WeightsPartRow, (user, digest, position)) is None:
        session.add(WeightsPartRow(user=user, digest=digest, position=position, data=data))
    return True


def complete_weights(session: Session, user: str, digest: str) -> bool:
    """Store that all parts are there; False if they are not."""
    row = session.get(WeightsRow, (user, digest))
    parts = select(func.sum(func.length(WeightsPartRow.data))).where(_named(WeightsPartRow, user, digest))
    held = session.scalar(parts) or 0
    if row is None or held != row.size_bytes:
        return False
    row.complete = True
    return True


def touch_weights(session: Session, user: str, digest: str) -> None:
    """Store that weights are used now."""
    session.execute(update(WeightsRow).where(_named(WeightsRow, user, digest)).values(used_at=utc_now()))


def lock_weights(session: Session, user: str) -> None:
    """Lock a user's weights until the transaction ends."""
    lock_name(session, "weights", user)


def find_weights(session: Session, user: str, digest: str) -> WeightsRecord | None:
    """What is known of weights; None if not all of them are there."""
    row = session.get(WeightsRow, (user, digest))
    return None if row is None or not row.complete else _record(row)


def list_weights(session: Session, user: str) -> list[WeightsRecord]:
    """A user's weights, those that were used last first. Not all of them are complete."""
    query = select(WeightsRow).where(WeightsRow.user == user)
    return [_record(row) for row in session.scalars(query.order_by(WeightsRow.used_at.desc(), WeightsRow.digest))]


def get_tensors(session: Session, user: str, digest: str) -> list[WeightRow]:
    """The tensors of weights that are there."""
    packed = session.scalars(select(WeightsRow.tensors).where(_named(WeightsRow, user, digest))).one()
    return [WeightRow.from_json(row) for row in json.loads(zlib.decompress(packed))]


def get_elements(session: Session, user: str, digest: str) -> bytes:
    """The bytes of weights that are there."""
    query = select(WeightsPartRow.data).where(_named(WeightsPartRow, user, digest))
    parts = session.scalars(query.order_by(WeightsPartRow.position).execution_options(yield_per=_PARTS_AT_ONCE))
    return b"".join(parts)


def stored_bytes(session: Session, user: str, *, but_for: str) -> int:
    """The bytes that a user's weights take, with those that are on their way, and without those of one digest."""
    taken = func.sum(WeightsRow.size_bytes + func.length(WeightsRow.tensors) + ROW_BYTES)
    others = WeightsRow.user == user, WeightsRow.digest != but_for
    return int(session.scalar(select(taken).where(*others)) or 0)


def is_wanted(session: Session, user: str, digest: str) -> bool:
    """Whether a job that waits or runs works with weights."""
    named = JobRow.user == user, JobRow.options[WEIGHTS].as_string() == digest
    return session.scalar(select(JobRow.id).where(JobRow.status.in_(OPEN), *named).limit(1)) is not None


def list_unused(session: Session, before: datetime) -> list[tuple[str, str]]:
    """Users and digests of all weights that were last used before a moment."""
    names = WeightsRow.user, WeightsRow.digest
    found = session.execute(select(*names).where(WeightsRow.used_at < before).order_by(*names))
    return [(user, digest) for user, digest in found]


def begin_removal(session: Session, user: str, digest: str, *, before: datetime | None = None) -> datetime | None:
    """Let no job name weights any more, unless they were used after `before`. `remove_some` takes them away.

    The caller has locked the user's weights.

    Returns:
        When they were used last; None if there are none, or they were used later.
    """
    row = session.get(WeightsRow, (user, digest))
    if row is None or (before is not None and row.used_at >= before):
        return None
    row.complete = False
    return row.used_at


def remove_some(session: Session, user: str, digest: str, *, used_at: datetime) -> bool:
    """Remove some parts of weights, and the weights with the last of them, unless they were used after `used_at`.

    The caller has locked the user's weights.

    Returns:
        Whether there is more to remove.
    """
    row = session.get(WeightsRow, (user, digest))
    if row is None or row.used_at > used_at:
        return False
    of_these = _named(WeightsPartRow, user, digest)
    some = list(session.scalars(select(WeightsPartRow.position).where(of_these).limit(_PARTS_AT_ONCE)))
    session.execute(delete(WeightsPartRow).where(of_these, WeightsPartRow.position.in_(some)))
    if len(some) < _PARTS_AT_ONCE:
        session.delete(row)
        return False
    return True


def _named(table: type[WeightsRow | WeightsPartRow], user: str, digest: str) -> ColumnElement[bool]:
    """Whether a row is that of these weights, or of a part of them."""
    return and_(table.user == user, table.digest == digest)


def _record(row: WeightsRow) -> WeightsRecord:
    return WeightsRecord(row.user, row.digest, row.size_bytes, row.complete, row.created_at, row.used_at)
