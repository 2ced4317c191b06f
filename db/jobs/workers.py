"""Workers in the store: which there are, and which of them have been heard of."""

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from db.records import Owner, WorkerRecord, WorkerStatus
from db.tables import WorkerRow
from db.types import utc_now

SEEN = (WorkerStatus.ALIVE.value, WorkerStatus.STOPPING.value)
"""What a worker is until it has ended or was given up."""

_ENDED_TOO = 200


def add_worker(
    session: Session,
    worker_id: str,
    owner: Owner,
    *,
    platform: str,
    slot: int,
    device: str,
    kind: str,
    sandbox: str,
    version: str,
) -> None:
    """Note that a worker has begun."""
    session.add(
        WorkerRow(
            id=worker_id,
            host=owner.host,
            pid=owner.pid,
            started=owner.started,
            platform=platform,
            slot=slot,
            device=device,
            kind=kind,
            sandbox=sandbox,
            version=version,
            status=WorkerStatus.ALIVE.value,
        )
    )


def beat(session: Session, worker_id: str) -> bool:
    """Note that a worker is still there; False if it was given up in the meantime."""
    return _change(session, worker_id, heartbeat_at=utc_now())


def is_seen(session: Session, worker_id: str) -> bool:
    """Whether this worker has neither ended nor been given up."""
    return session.scalar(select(WorkerRow.status).where(WorkerRow.id == worker_id)) in SEEN


def hold(session: Session, worker_id: str) -> bool:
    """As `is_seen`, and it stays so until the transaction ends, which must be one that writes."""
    return session.scalar(select(WorkerRow.status).where(WorkerRow.id == worker_id).with_for_update()) in SEEN


def set_stopping(session: Session, worker_id: str) -> bool:
    """Note that a worker takes nothing more; False if it was given up."""
    return _change(session, worker_id, status=WorkerStatus.STOPPING.value)


def set_stopped(session: Session, worker_id: str) -> bool:
    """Note that a worker has ended in good order; False if it was given up."""
    return _change(session, worker_id, status=WorkerStatus.STOPPED.value, stopped_at=utc_now())


def set_lost(session: Session, worker_id: str) -> bool:
    """Give a worker up that is not heard of any more; False if someone else did, or it ended."""
    return _change(session, worker_id, status=WorkerStatus.LOST.value, stopped_at=utc_now())


def list_workers(session: Session, *, seen: bool = False, limit: int | None = None) -> list[WorkerRecord]:
    """Workers, newest first; `seen`: only those that have neither ended nor been given up.

    Without a `limit` these are all there are, for whoever is left out would be taken for dead; of others the newest.
    """
    query = select(WorkerRow).order_by(WorkerRow.started_at.desc(), WorkerRow.id)
    if seen:
        query = query.where(WorkerRow.status.in_(SEEN))
    elif limit is None:
        limit = _ENDED_TOO
    if limit is not None:
        query = query.limit(limit)
    return [_record(row) for row in session.scalars(query)]


def _change(session: Session, worker_id: str, **values: object) -> bool:
    seen = (WorkerRow.id == worker_id, WorkerRow.status.in_(SEEN))
    return bool(session.execute(update(WorkerRow).where(*seen).values(**values).returning(WorkerRow.id)).all())


def _record(row: WorkerRow) -> WorkerRecord:
    return WorkerRecord(
        id=row.id,
        owner=Owner(row.host, row.pid, row.started),
        platform=row.platform,
        slot=row.slot,
        device=row.device,
        kind=row.kind,
        sandbox=row.sandbox,
        version=row.version,
        status=WorkerStatus(row.status),
        started_at=row.started_at,
        heartbeat_at=row.heartbeat_at,
        stopped_at=row.stopped_at,
    )
