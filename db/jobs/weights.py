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
    return b"".join(session.scalars(query.order_by(WeightsPartRow.position)))


def stored_bytes(session: Session, user: str, *, but_for: str) -> int:
    """The bytes that a user's weights take, with those that are on their way, and without those of one digest."""
    taken = func.sum(WeightsRow.size_bytes + func.length(WeightsRow.tensors) + ROW_BYTES)
    others = WeightsRow.user == user, WeightsRow.digest != but_for
    return int(session.scalar(select(taken).where(*others)) or 0)


def is_wanted(session: Session, user: str, digest: str) -> bool:
    """Whether a job that waits or runs works with weights."""
    named = JobRow.user == user, JobRow.options[WEIGHTS].as_string() == digest
    return session.scalar(select(JobRow.id).where(JobRow.status.in_(OPEN), *named).limit(1)) is not None


def remove_weights(session: Session, user: str, digest: str, *, before: datetime | None = None) -> bool:
    """Remove weights, unless they were used after `before`; whether there were any to remove."""
    gone = delete(WeightsRow).where(_named(WeightsRow, user, digest))
    if before is not None:
        gone = gone.where(WeightsRow.used_at < before)
    return session.scalar(gone.returning(WeightsRow.digest)) is not None


def remove_unused(session: Session, before: datetime) -> None:
    """Remove all users' weights that were last used before a moment and that no open job works with."""
    names = WeightsRow.user, WeightsRow.digest
    old = session.execute(select(*names).where(WeightsRow.used_at < before).order_by(*names)).all()
    for user, digest in old:
        if not is_wanted(session, user, digest):
            # A job that names them may be stored at this moment: it has touched them, and they are not old any more.
            remove_weights(session, user, digest, before=before)


def _named(table: type[WeightsRow | WeightsPartRow], user: str, digest: str) -> ColumnElement[bool]:
    """Whether a row is that of these weights, or of a part of them."""
    return and_(table.user == user, table.digest == digest)


def _record(row: WeightsRow) -> WeightsRecord:
    return WeightsRecord(row.user, row.digest, row.size_bytes, row.complete, row.created_at, row.used_at)
