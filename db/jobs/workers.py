"""Workers in the store and their heartbeats."""

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from db.records import Owner, WorkerRecord, WorkerStatus
from db.tables import WorkerRow
from db.types import utc_now

LIVE = (WorkerStatus.ALIVE.value, WorkerStatus.STOPPING.value)
"""The statuses of a worker that has neither ended nor been declared lost."""

_LISTED = 200


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
    """Store a worker that has started."""
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


def record_heartbeat(session: Session, worker_id: str) -> bool:
    """Store a worker's heartbeat. False if the worker was declared lost."""
    return _update(session, worker_id, heartbeat_at=utc_now())


def is_live(session: Session, worker_id: str) -> bool:
    """Whether a worker has neither ended nor been declared lost."""
    return session.scalar(select(WorkerRow.status).where(WorkerRow.id == worker_id)) in LIVE


def lock_if_live(session: Session, worker_id: str) -> bool:
    """Lock a worker if it is live, so that it stays so until the (writing) transaction ends. False if it is not."""
    return session.scalar(select(WorkerRow.status).where(WorkerRow.id == worker_id).with_for_update()) in LIVE


def set_stopping(session: Session, worker_id: str) -> bool:
    """Store that a worker takes no more jobs. False if it was declared lost."""
    return _update(session, worker_id, status=WorkerStatus.STOPPING.value)


def set_stopped(session: Session, worker_id: str) -> bool:
    """Store that a worker has ended. False if it was declared lost."""
    return _update(session, worker_id, status=WorkerStatus.STOPPED.value, stopped_at=utc_now())


def set_lost(session: Session, worker_id: str) -> bool:
    """Declare a worker lost that sends no heartbeats. False if another process was faster, or the worker has ended."""
    return _update(session, worker_id, status=WorkerStatus.LOST.value, stopped_at=utc_now())


def list_workers(session: Session, *, live: bool = False, limit: int | None = None) -> list[WorkerRecord]:
    """Workers, newest first.

    Args:
        session: A transaction.
        live: Only workers that have neither ended nor been declared lost.
        limit: At most so many. If None, all live workers are returned (a missing one would be taken for lost), or the
            200 newest of all.
    """
    query = select(WorkerRow).order_by(WorkerRow.started_at.desc(), WorkerRow.id)
    if live:
        query = query.where(WorkerRow.status.in_(LIVE))
    elif limit is None:
        limit = _LISTED
    if limit is not None:
        query = query.limit(limit)
    return [_record(row) for row in session.scalars(query)]


def _update(session: Session, worker_id: str, **values: object) -> bool:
    live = (WorkerRow.id == worker_id, WorkerRow.status.in_(LIVE))
    return bool(session.execute(update(WorkerRow).where(*live).values(**values).returning(WorkerRow.id)).all())


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
